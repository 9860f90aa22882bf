package probe_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"net"

	"github.com/causewayproject/causeway/internal/test/pki"
	"github.com/causewayproject/causeway/internal/test/proxytest"
	"github.com/causewayproject/causeway/kubeconfig"
	"github.com/causewayproject/causeway/kubeconfig/probe"
)

// The kubeconfig has a wrong password for its proxy.
func ExampleRun() {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	behind := &proxytest.HTTP{Username: "user", Password: "password"}
	proxy := proxytest.Serve(l, behind.Handle)
	defer proxy.Close()
	config, err := kubeconfig.Spec{
		Name:        "prod",
		Endpoint:    kubeconfig.Endpoint{Host: "192.0.2.10", Port: 6443},
		CA:          pki.NewCA("kubernetes").CertPEM(),
		Credentials: kubeconfig.Credentials{Token: "token"},
		Route:       kubeconfig.Route{ProxyURL: "http://user:wrong@" + proxy.Addr()},
	}.Build()
	if err != nil {
		log.Fatal(err)
	}

	report := probe.Run(context.Background(), config)
	for _, step := range report.Steps {
		fmt.Println(step.Phase, step.Err == nil)
	}
	var failed *probe.Error
	if errors.As(report.Err(), &failed) {
		fmt.Println(failed)
		fmt.Println(failed.Advice)
	}
	// Output:
	// config true
	// tcp true
	// proxy auth false
	// probe: proxy auth: the proxy answered 407: it refused the user name and password
	// Correct user name and password in the kubeconfig's proxy-url (percent-encode : / ? # @ % and spaces); with the Kubeconfig Provider, in the Secret that the annotation route-secret names.
}
