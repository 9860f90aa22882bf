// Egress is both directions of kube-apiserver's EgressSelectorConfiguration.
//
//	egress config -socket /run/causeway/prod.sock >egress.yaml
//	egress config -url https://127.0.0.1:8131 -ca ca.crt -cert prod.crt -key prod.key >egress.yaml
//
// prints the one that sends a kube-apiserver through a gateway; it goes to
// --egress-selector-config-file. A door of a tunnel's server into the cluster
// serves it:
//
//	causeway server -connect-unix /run/causeway/prod.sock=default/prod
//	causeway server -connect-tls 127.0.0.1:8131 -door-cert ... -door-key ... -door-client-ca ...
//
// with, for the latter, a client certificate whose common name is the cluster.
//
//	egress dial -config egress.yaml 10.0.0.7:10250
//
// dials as a kube-apiserver with that file does, a Konnectivity user's for
// example, and connects standard input and output to the target.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/causewayproject/causeway/tunnel/egress"
)

const usage = `usage:
  egress config [flags]
  egress dial   [flags] HOST:PORT

-h after a command lists its flags.
`

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the process
	if err := run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr); err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run is main without the process.
func run(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) error {
	if len(args) == 0 {
		return errors.New(strings.TrimSpace(usage))
	}
	switch args[0] {
	case "config":
		return writeConfig(args[1:], stdout, stderr)
	case "dial":
		return dial(ctx, args[1:], stdin, stdout, stderr)
	case "help", "-h", "-help", "--help":
		_, err := io.WriteString(stdout, usage)
		return err
	}
	return fmt.Errorf("egress: unknown command %q", args[0])
}

// writeConfig prints a configuration.
func writeConfig(args []string, stdout, stderr io.Writer) error {
	set := flag.NewFlagSet("egress config", flag.ContinueOnError)
	set.SetOutput(stderr)
	var (
		names  []egress.Name
		files  egress.TLS
		socket = set.String("socket", "", "absolute `path` of the gateway's unix socket")
		url    = set.String("url", "", "`https://host:port` of the gateway")
	)
	set.Func("selection", "`name` of what goes there: cluster (the default), controlplane or etcd; several are allowed", func(name string) error {
		names = append(names, egress.Name(name))
		return nil
	})
	set.StringVar(&files.CABundle, "ca", "", "with -url: PEM `file` of the gateway's authority; default the system's")
	set.StringVar(&files.ClientCert, "cert", "", "with -url: PEM `file` of kube-apiserver's client certificate")
	set.StringVar(&files.ClientKey, "key", "", "with -url: PEM `file` of its key")
	if err := set.Parse(args); err != nil {
		return err
	}
	if set.NArg() > 0 || (*socket == "") == (*url == "") || *socket != "" && files != (egress.TLS{}) {
		return errors.New("egress config: one of -socket and -url is required, the latter with -cert and -key")
	}
	connection := egress.ThroughSocket(*socket)
	if *url != "" {
		connection = egress.ThroughTLS(*url, files)
	}
	if len(names) == 0 {
		names = []egress.Name{egress.Cluster}
	}
	var c egress.Configuration
	for _, name := range names {
		c.Selections = append(c.Selections, egress.Selection{Name: name, Connection: connection})
	}
	text, err := c.Marshal()
	if err != nil {
		return err
	}
	_, err = stdout.Write(text)
	return err
}

// dial dials by a configuration.
func dial(ctx context.Context, args []string, stdin io.Reader, stdout, stderr io.Writer) error {
	set := flag.NewFlagSet("egress dial", flag.ContinueOnError)
	set.SetOutput(stderr)
	path := set.String("config", "", "`file` of an EgressSelectorConfiguration")
	name := set.String("selection", string(egress.Cluster), "`name` of the way to take")
	if err := set.Parse(args); err != nil {
		return err
	}
	if *path == "" || set.NArg() != 1 {
		return errors.New("egress dial: -config and one HOST:PORT are required")
	}
	text, err := os.ReadFile(*path)
	if err != nil {
		return fmt.Errorf("egress: -config: %w", err)
	}
	c, err := egress.Parse(text)
	if err != nil {
		return err
	}
	d, err := c.Dialer(egress.Name(*name))
	if err != nil {
		return err
	}
	conn, err := d.DialContext(ctx, "tcp", set.Arg(0))
	if err != nil {
		return err
	}
	defer conn.Close()
	defer context.AfterFunc(ctx, func() { conn.Close() })()
	go func() { // ends with the input, at the latest with the process
		io.Copy(conn, stdin)
		if half, ok := conn.(interface{ CloseWrite() error }); ok {
			half.CloseWrite()
		}
	}()
	_, err = io.Copy(stdout, conn)
	return err
}
