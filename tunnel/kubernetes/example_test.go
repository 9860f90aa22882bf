package kubernetes_test

import (
	"context"
	"log"
	"net"

	clientset "k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/causewayproject/causeway/tunnel"
	"github.com/causewayproject/causeway/tunnel/gateway"
	"github.com/causewayproject/causeway/tunnel/kubernetes"
)

// One of several replicas of a tunnel server with a gateway, in a pod.
func Example() {
	ctx := context.Background() // until SIGTERM
	config, err := rest.InClusterConfig()
	if err != nil {
		log.Fatal(err)
	}
	config.QPS, config.Burst = 200, 400
	client, err := clientset.NewForConfig(config)
	if err != nil {
		log.Fatal(err)
	}

	authority := kubernetes.AuthoritySecret{Client: client, Namespace: "tunnel", Name: "authority"}
	first, err := authority.LoadOrCreate(ctx)
	if err != nil {
		log.Fatal(err)
	}
	store := &kubernetes.SecretStore{Client: client, Namespace: "tunnel"}
	server := &tunnel.Server{Authority: first, Store: store}
	go server.FollowStore(ctx)
	go authority.Watch(ctx, server.SetAuthority)

	// Clients show a token of kubectl create token --audience=tunnel.example.com.
	review := &kubernetes.TokenReview{Client: client, Audiences: []string{"tunnel.example.com"}}
	g := &gateway.Gateway{
		Authenticate: review.Authenticate,
		Dial: func(ctx context.Context, r gateway.Request) (net.Conn, error) {
			return server.Dialer(r.Cluster).DialContext(ctx, "tcp", r.Address)
		},
	}
	door, err := net.Listen("tcp", "127.0.0.1:3128") // or with TLS
	if err != nil {
		log.Fatal(err)
	}
	go g.ServeConnect(ctx, door)

	agents, err := net.Listen("tcp", ":8443")
	if err != nil {
		log.Fatal(err)
	}
	log.Fatal(server.Serve(ctx, agents))
}

// Who the other replicas of a Service are, as they come and go.
func ExampleEndpointSlices() {
	var client clientset.Interface
	replicas := kubernetes.EndpointSlices{Client: client, Namespace: "tunnel", Service: "tunnel-server", Port: "agents"}
	err := replicas.Watch(context.Background(), func(zones map[string]string) { log.Print(zones) })
	log.Print(err)
}
