package egress_test

import (
	"fmt"
	"log"

	"github.com/causewayproject/causeway/dialer"
	"github.com/causewayproject/causeway/tunnel/egress"
)

func ExampleConfiguration_Marshal() {
	c := egress.Configuration{Selections: []egress.Selection{
		{Name: egress.Cluster, Connection: egress.ThroughSocket("/run/causeway/tunnel/egress.sock")},
	}}
	text, err := c.Marshal()
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

// A controller beside an existing kube-apiserver goes the same way.
func ExampleConfiguration_Dialer() {
	c, err := egress.Parse([]byte(`
apiVersion: apiserver.k8s.io/v1beta1
kind: EgressSelectorConfiguration
egressSelections:
- name: cluster
  connection:
    proxyProtocol: HTTPConnect
    transport: {uds: {udsName: /etc/kubernetes/konnectivity-server/konnectivity-server.socket}}
`))
	if err != nil {
		log.Fatal(err)
	}
	d, err := c.Dialer(egress.Cluster)
	if err != nil {
		log.Fatal(err)
	}
	client := dialer.Transport(d)
	defer client.CloseIdleConnections()
}
