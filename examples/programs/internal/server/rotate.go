package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/causewayproject/causeway/examples/programs/internal/cli"
	"github.com/causewayproject/causeway/examples/programs/internal/command"
	"github.com/causewayproject/causeway/tunnel"
	tunnelkube "github.com/causewayproject/causeway/tunnel/kubernetes"
)

// The next authority is kept in the same Secret, under keys that AuthoritySecret does
// not read.
const (
	nextCert = "next.crt"
	nextKey  = "next.key"
)

// rotateSteps are the steps of a rollover, see tunnel.Authority.
var rotateSteps = map[string]func(data map[string][]byte) error{
	"add":    addAuthority,
	"switch": switchAuthority,
	"drop":   dropAuthority,
}

func rotateCommand() *cobra.Command {
	flags := new(stateFlags)
	cmd := &cobra.Command{
		Use:   "rotate add|switch|drop",
		Short: "replace the authority in --secrets, in three steps",
		Long: `Replaces the authority of the servers, in three steps: add has agents trust a new one. When
all of them have connected since, switch: invitations that are out are void then. After
the life of a certificate (7 days), drop. Each step prints which authority signs then. Only a state in --secrets can be rotated.`,
		Example:   "  causeway rotate add --secrets tunnel-server/tunnel --kubeconfig admin.conf",
		ValidArgs: []string{"add", "switch", "drop"},
		Args:      command.Args,
		RunE: func(cmd *cobra.Command, args []string) error {
			step := rotateSteps[args[0]]
			if step == nil {
				return cli.Mistake("unknown step %q: want add, switch or drop", args[0])
			}
			if err := command.Require(cmd, "secrets"); err != nil {
				return err
			}
			return flags.rotate(cmd.Context(), step, cmd.OutOrStdout())
		},
	}
	flags.addSecrets(cmd.Flags())
	return cmd
}

// rotate takes one step, and prints which authority signs then.
func (f *stateFlags) rotate(ctx context.Context, step func(map[string][]byte) error, stdout io.Writer) error {
	st, err := f.open(ctx)
	if err != nil {
		return err
	}
	if err := st.secrets.rotate(ctx, step); err != nil {
		return err
	}
	a, err := st.secrets.authority.Load(ctx)
	if err == nil {
		_, err = fmt.Fprintf(stdout, "%s signs, %d more trusted\n", a.Pin(), len(a.Trusted))
	}
	return err
}

// rotate applies a step to the version of the Secret that it has read. Of two at the
// same time, one fails.
func (s *secretState) rotate(ctx context.Context, step func(map[string][]byte) error) error {
	secrets := s.client.CoreV1().Secrets(s.namespace)
	secret, err := secrets.Get(ctx, s.authority.Name, metav1.GetOptions{})
	if err == nil {
		err = step(secret.Data)
	}
	if err == nil {
		_, err = secrets.Update(ctx, secret, metav1.UpdateOptions{})
	}
	return err
}

// addAuthority makes agents and servers trust the next authority.
func addAuthority(data map[string][]byte) error {
	if data[nextCert] != nil || data[tunnelkube.DataTrusted] != nil {
		return errors.New("another authority is trusted already: switch or drop comes next")
	}
	a, err := tunnel.NewAuthority()
	if err != nil {
		return err
	}
	if data[nextCert], data[nextKey], err = a.PEM(); err != nil {
		return err
	}
	data[tunnelkube.DataTrusted] = data[nextCert]
	return nil
}

// switchAuthority makes the next authority sign.
func switchAuthority(data map[string][]byte) error {
	if data[nextCert] == nil {
		return errors.New("there is no other authority: add comes first")
	}
	data[tunnelkube.DataTrusted] = slices.Clone(data[corev1.TLSCertKey])
	data[corev1.TLSCertKey], data[corev1.TLSPrivateKeyKey] = data[nextCert], data[nextKey]
	delete(data, nextCert)
	delete(data, nextKey)
	return nil
}

// dropAuthority makes agents and servers trust only the authority that signs, whether
// or not it is the new one.
func dropAuthority(data map[string][]byte) error {
	if data[tunnelkube.DataTrusted] == nil {
		return errors.New("no other authority is trusted")
	}
	for _, key := range []string{tunnelkube.DataTrusted, nextCert, nextKey} {
		delete(data, key)
	}
	return nil
}
