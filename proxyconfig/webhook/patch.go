package webhook

import (
	"strconv"

	corev1 "k8s.io/api/core/v1"
)

// patchOperations returns those for a pod that is created or, if there was an old one,
// for the ephemeral containers that it has not had: the others can't be changed,
// and a patch of one would have the request refused.
func patchOperations(missingOf func(container) []corev1.EnvVar, p, old *pod) (ops []Operation, injected []string) {
	add := func(list string, containers []container, had map[string]bool) {
		for n, c := range containers {
			if missing := missingOf(c); !had[c.Name] && len(missing) > 0 {
				ops = append(ops, toEnv("/spec/"+list+"/"+strconv.Itoa(n)+"/env", c.Env, missing)...)
				injected = append(injected, c.Name)
			}
		}
	}
	had := map[string]bool{}
	if old != nil {
		for _, c := range old.Spec.EphemeralContainers {
			had[c.Name] = true
		}
	} else {
		add("initContainers", p.Spec.InitContainers, nil)
		add("containers", p.Spec.Containers, nil)
	}
	add("ephemeralContainers", p.Spec.EphemeralContainers, had)
	return ops, injected
}

// toEnv appends to a list, or makes it: "-" needs a list that exists.
func toEnv(path string, env, missing []corev1.EnvVar) []Operation {
	if len(env) == 0 {
		return []Operation{{Op: "add", Path: path, Value: missing}}
	}
	ops := make([]Operation, len(missing))
	for n, v := range missing {
		ops[n] = Operation{Op: "add", Path: path + "/-", Value: v}
	}
	return ops
}
