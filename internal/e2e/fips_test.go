package e2e

import (
	"net"
	"testing"

	"github.com/causewayproject/causeway/internal/e2e/bed"
)

// With GODEBUG=fips140=only an algorithm that FIPS 140 does not approve is an error or a
// panic. The tunnel's programs get by without one: agents enrol and connect by TLS and by
// WebSocket, all doors work, and so do new tickets
// after a revocation.
func TestFIPSOnly(t *testing.T) {
	b := sharedBed(t)
	p := buildPrograms(t, b)
	p.env = []string{"GODEBUG=fips140=only"}
	const byTLS, byWebSocket = "fips/tls", "fips/websocket"
	address, web := net.JoinHostPort(bed.HubIP, tunnelPort), net.JoinHostPort(bed.HubWebIP, tunnelPort)
	cert, key := p.writeCertificate("web", b.Kube.CA, bed.HubWebIP)
	server := p.start(b.Network.Hub, bed.Command{Argv: append([]string{p.path("causeway"), "server", "--state", p.path("server"), "--status", "127.0.0.1:0",
		"--listen", address, "--websocket", web, "--websocket-cert", cert, "--websocket-key", key},
		p.doorFlags("127.0.0.1", b.Kube.CA, byTLS)...)})
	writeFile(t, p.path("ca.crt"), string(b.Kube.CA.CertPEM()))
	agent := func(cluster, name, server string) *bed.Running {
		writeFile(t, p.path(name), p.command("", "enroll", "--state", p.path("server"), "--format", "env", "--server", server, cluster))
		return p.start(b.Network.API, bed.Command{Argv: []string{p.path("causeway-agent"), "--state", p.path(name + "-state"), "--status", "127.0.0.1:0",
			"--invitation", p.path(name), "--alias", apiTarget + "=" + b.Kube.Address()},
			Env: []string{"HTTPS_PROXY=" + b.Office.URL().String(), "SSL_CERT_FILE=" + p.path("ca.crt")}})
	}
	agents := []*bed.Running{agent(byTLS, "tls", address), agent(byWebSocket, "websocket", "wss://"+web)}
	p.useDoors(b.Network.Hub, "127.0.0.1", b.Kube, byTLS)
	p.useTicket(b.Network.Hub, "https://"+doorAddress("127.0.0.1", doorTLS), b.Kube, byWebSocket)
	p.command("", "ticket", "--revoke-all", "--state", p.path("server"))
	p.useTicket(b.Network.Hub, "http://"+doorAddress("127.0.0.1", doorConnect), b.Kube, byWebSocket)
	for _, r := range append(agents, server) {
		p.ends(r)
	}
}
