// Command expand makes a container's environment by the kubelet's own rules: it reads a
// list of variables in JSON, and writes what they are.
package main

import (
	"encoding/json"
	"fmt"
	"os"

	"k8s.io/kubernetes/third_party/forked/golang/expansion"
)

// variable is one whose value is expanded, unless it is from a Secret.
type variable struct {
	Name, Value string
	Secret      bool
}

func main() {
	var vars []variable
	if err := json.NewDecoder(os.Stdin).Decode(&vars); err != nil {
		fmt.Fprintln(os.Stderr, "expand:", err)
		os.Exit(1)
	}
	environment := map[string]string{}
	for _, v := range vars {
		if !v.Secret {
			v.Value = expansion.Expand(v.Value, expansion.MappingFuncFor(environment))
		}
		environment[v.Name] = v.Value
	}
	if err := json.NewEncoder(os.Stdout).Encode(environment); err != nil {
		fmt.Fprintln(os.Stderr, "expand:", err)
		os.Exit(1)
	}
}
