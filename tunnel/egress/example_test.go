package egress_test

import (
	"fmt"
	"log"

	"github.com/causewayproject/causeway/tunnel/egress"
)

func ExampleConfiguration() {
	text, err := egress.Configuration("/run/causeway/tunnel/egress.sock")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Print(string(text))
	// Output:
	// apiVersion: apiserver.k8s.io/v1beta1
	// egressSelections:
	// - connection:
	//     proxyProtocol: HTTPConnect
	//     transport:
	//       uds:
	//         udsName: /run/causeway/tunnel/egress.sock
	//   name: cluster
	// kind: EgressSelectorConfiguration
}
