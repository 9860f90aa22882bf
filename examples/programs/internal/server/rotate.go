package server

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

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
	// stepTime is when the last step was taken.
	stepTime = "step"
)

const (
	// addedTime is how long servers and the agents that are connected may take to learn of a
	// new authority.
	addedTime = 10 * time.Minute
	// certificateTime is the life of a certificate: after it each agent has renewed it. A key
	// of tickets must have been without use for as long.
	certificateTime = 7 * 24 * time.Hour
)

func rotateCommand() *cobra.Command {
	var force, tickets bool
	cmd := stateCommand(&cobra.Command{
		Use:   "rotate add|switch|drop",
		Short: "replace the authority, or the key of --tickets, in three steps",
		Long: `Replaces the authority of the servers, in three steps: add has agents trust a new one. When
all of them have connected since, switch: invitations that are out are void then. After
the life of a certificate (7 days), drop. Each step prints which authority signs then. Only an authority in --secrets can be rotated.

With --tickets it replaces the key that signs tickets: add has servers accept a new one, switch has
it sign, and the Secrets of --clusters get new tickets. Those of the former key are valid
until drop, which lists the clients that have used one, and drops nothing while somebody has within 7 days.`,
		Example: `  causeway rotate add --secrets tunnel-server/tunnel --kubeconfig admin.conf
  causeway rotate drop --tickets --secrets tunnel-server/tunnel`,
		ValidArgs: []string{"add", "switch", "drop"},
		Args:      command.Args,
		PreRunE: func(cmd *cobra.Command, args []string) error {
			switch {
			case !slices.Contains(cmd.ValidArgs, args[0]):
				return cli.Mistake("unknown step %q: want add, switch or drop", args[0])
			case tickets:
				return nil
			}
			return command.Require(cmd, "secrets")
		},
	}, func(cmd *cobra.Command, _ *stateFlags, st *state, args []string) error {
		if tickets {
			return rotateTickets(cmd.Context(), st, args[0], force, cmd.OutOrStdout())
		}
		return st.secrets.rotate(cmd.Context(), args[0], force, cmd.OutOrStdout())
	})
	cmd.Flags().BoolVar(&tickets, "tickets", false, "replace the key that signs tickets instead of the authority")
	cmd.Flags().BoolVar(&force, "force", false, "take the step too early: agents that have not connected, or renewed, since the last one need a new invitation then, clients of the former key new tickets")
	return cmd
}

// checkStep returns an error for a step that is not the next one, and what one that comes too
// early would cost, unless it is forced.
func checkStep(step string, data map[string][]byte, now time.Time, force bool) error {
	if err := checkOrder(step, "authority", data[nextCert] != nil, data[tunnelkube.DataTrusted] != nil, force); err != nil {
		return err
	}
	last, err := time.Parse(time.RFC3339, string(data[stepTime]))
	switch ago := now.Sub(last).Round(time.Second); {
	case force:
	case step == "switch" && err != nil && data[stepTime] != nil:
		return errors.New("it is not known when the new authority was added: agents that have not connected since would need a new invitation; --force switches")
	case step == "switch" && ago < addedTime:
		return fmt.Errorf("the new authority was added %v ago: agents that have not connected since would need a new invitation. Wait until each has, %v at least; --force switches now", ago, addedTime)
	case step == "drop" && err != nil:
		return errors.New("it is not known when the authority was switched: agents that have not renewed their certificates in the 7 days since would need a new invitation; --force drops")
	case step == "drop" && ago < certificateTime:
		return fmt.Errorf("the authority was switched %v ago: agents that have not renewed their certificates since would need a new invitation. Wait until %s; --force drops now", ago, last.Add(certificateTime).UTC().Format(time.RFC3339))
	}
	return nil
}

// checkOrder returns an error for a step that is not the next one of a rollover. Of an added one
// that does not sign yet, drop is, too, if it is forced.
func checkOrder(step, what string, added, switched, force bool) error {
	next, reason := "add", "no other "+what+" is trusted: add comes first"
	switch {
	case added:
		next, reason = "switch", "a new "+what+" was added, and does not sign yet: switch comes next; drop --force removes it instead"
	case switched:
		next, reason = "drop", "the new "+what+" signs already, and the one before is still trusted: drop comes next"
	}
	if step != next && (!force || step != "drop" || next != "switch") {
		return errors.New(reason)
	}
	return nil
}

// rotate takes one step, if checkStep allows it, and prints which authority signs then. It applies
// the step to the version of the Secret that it has read: of two at the same time, one fails.
func (s *secretState) rotate(ctx context.Context, step string, force bool, stdout io.Writer) error {
	secrets := s.client.CoreV1().Secrets(s.namespace)
	secret, err := secrets.Get(ctx, s.authority.Name, metav1.GetOptions{})
	if err == nil {
		err = checkStep(step, secret.Data, time.Now(), force)
	}
	if err == nil {
		err = takeStep(step, secret.Data)
	}
	if err == nil {
		secret.Data[stepTime] = []byte(time.Now().UTC().Format(time.RFC3339))
		_, err = secrets.Update(ctx, secret, metav1.UpdateOptions{})
	}
	if err != nil {
		return err
	}
	a, err := s.authority.Load(ctx)
	if err == nil {
		_, err = fmt.Fprintf(stdout, "%s signs, %d more trusted\n", a.Pin(), len(a.Trusted))
	}
	return err
}

// takeStep takes a step of a rollover, see tunnel.Authority, in the data of the Secret.
func takeStep(step string, data map[string][]byte) error {
	switch step {
	case "add": // agents and servers trust the next authority
		a, err := tunnel.NewAuthority()
		if err != nil {
			return err
		}
		if data[nextCert], data[nextKey], err = a.PEM(); err != nil {
			return err
		}
		data[tunnelkube.DataTrusted] = data[nextCert]
		return nil
	case "switch": // the next authority signs
		data[tunnelkube.DataTrusted] = data[corev1.TLSCertKey]
		data[corev1.TLSCertKey], data[corev1.TLSPrivateKeyKey] = data[nextCert], data[nextKey]
	case "drop": // they trust only the authority that signs, whether or not it is the new one
		delete(data, tunnelkube.DataTrusted)
	}
	delete(data, nextCert)
	delete(data, nextKey)
	return nil
}
