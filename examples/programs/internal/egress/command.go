// Package egress is the commands at kube-apiserver's side: the proxy beside a
// kube-apiserver, and the phases by which a cluster comes to use it.
package egress

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"
	"sigs.k8s.io/yaml"

	"github.com/causewayproject/causeway/examples/programs/internal/cli"
	"github.com/causewayproject/causeway/examples/programs/internal/command"
	"github.com/causewayproject/causeway/tunnel/egress"
)

const long = `Leads a kube-apiserver to the nodes, Services and Pods of its cluster through the tunnel.

A container beside kube-apiserver, the sidecar, runs "egress serve". A cluster goes through
three phases, each with one restart of kube-apiserver:

  off     there is no sidecar
  beside  the sidecar runs, and kube-apiserver goes its own way; both ways are compared
  on      kube-apiserver uses the sidecar`

// Command returns the commands.
func Command() *cobra.Command {
	return command.Parent(&cobra.Command{Use: "egress", Short: "lead a kube-apiserver to its nodes through the tunnel, in phases", Long: long, Example: setExample},
		serveCommand(), probeCommand(), setCommand(), renderCommand())
}

// sidecarFlags are the flags for the fields of an egress.Sidecar.
type sidecarFlags struct {
	manifest string
	sidecar  egress.Sidecar
}

func (f *sidecarFlags) add(set *pflag.FlagSet) {
	set.StringVar(&f.manifest, "manifest", "", "`file` of kube-apiserver's manifest")
	set.StringVar(&f.sidecar.Image, "image", "", "`image` with the program causeway, for the sidecar")
	set.StringVar(&f.sidecar.Gateway, "gateway", "", "`URL` of the gateway as the sidecar sees it, http or https, without credentials")
	set.StringVar(&f.sidecar.CredentialsPath, "credentials", "", "`directory` of the machine with the files of the credentials, for a static pod: see egress serve")
	set.StringVar(&f.sidecar.CredentialsSecret, "credentials-secret", "", "`name` of a Secret with them, in the namespace of the Deployment")
	set.StringVar(&f.sidecar.TokenAudience, "token-audience", "", "`name` of the gateway for which the Deployment's ServiceAccount gets a token, instead of the Secret")
	cli.Exclude(set, "credentials", "credentials-secret", "token-audience")
	cli.Exclude(set, "credentials-secret", "token-audience")
	set.Int64Var(&f.sidecar.User, "user", 0, "`ID` of the user that kube-apiserver runs as; default what its manifest says, or root")
	set.StringVar(&f.sidecar.Dir, "dir", "", "`directory` for the socket, in the containers and, for a static pod, on the machine; default /run/causeway-egress")
}

// fieldFlags are the flags for the fields that errors of the library name.
var fieldFlags = []string{
	"egress: Sidecar.Image", "--image", "egress: Sidecar.Cluster", "CLUSTER", "egress: Sidecar.Gateway", "--gateway",
	"Sidecar.CredentialsPath", "--credentials", "Sidecar.CredentialsSecret", "--credentials-secret",
	"egress: Sidecar.Dir", "--dir", "egress: Sidecar.User", "--user",
	"Sidecar.TokenAudience", "--token-audience", "Sidecar.Dir", "--dir", "Sidecar.User", "--user",
}

// checkPlace returns a mistake for what does not fit together, or can't be a name.
func (f *sidecarFlags) checkPlace(static bool) error {
	switch {
	case f.sidecar.CredentialsSecret != "" && len(validation.IsDNS1123Subdomain(f.sidecar.CredentialsSecret)) > 0:
		return cli.Mistake("--credentials-secret %q is not the name of a Secret", f.sidecar.CredentialsSecret)
	case !static && f.sidecar.CredentialsPath != "":
		return cli.Mistake("--credentials is for a static pod; a Deployment takes --credentials-secret or --token-audience")
	case static && f.sidecar.CredentialsSecret+f.sidecar.TokenAudience != "":
		return cli.Mistake("--credentials-secret and --token-audience are for a Deployment; a static pod takes --credentials")
	}
	return nil
}

// parsePhase reads the argument PHASE.
func parsePhase(text string) (egress.Phase, error) {
	if !slices.Contains(egress.Phases(), egress.Phase(text)) {
		return "", cli.Mistake("PHASE %q is not off, beside or on", text)
	}
	return egress.Phase(text), nil
}

func renderCommand() *cobra.Command {
	var f sidecarFlags
	cmd := &cobra.Command{
		Use:   "render PHASE CLUSTER",
		Short: "print the manifest of a kube-apiserver in a PHASE, or patches for it",
		Long: `Prints the --manifest in the phase: that of a static pod or a Deployment. Without --manifest
it prints patches in the form that a KubeadmConfig takes.`,
		Example: "  causeway egress render on default/prod --credentials /etc/kubernetes/causeway-egress --gateway https://tunnel.example.com:3129 --image registry.example.com/causeway:1",
		Args:    command.Args,
		RunE: func(cmd *cobra.Command, args []string) error {
			phase, err := parsePhase(args[0])
			if err != nil {
				return err
			}
			f.sidecar.Cluster = args[1]
			text, err := f.render(phase)
			if err != nil {
				return err
			}
			_, err = cmd.OutOrStdout().Write(text)
			return err
		},
	}
	f.add(cmd.Flags())
	return cmd
}

func (f *sidecarFlags) render(phase egress.Phase) (text []byte, err error) {
	var object struct{ Kind string }
	var manifest []byte
	if f.manifest != "" {
		if manifest, err = os.ReadFile(f.manifest); err != nil {
			return nil, fmt.Errorf("--manifest: %w", err)
		}
		_ = yaml.Unmarshal(manifest, &object) // SetPhase says what is wrong
	}
	if err := f.checkPlace(object.Kind == "Pod" || f.manifest == ""); err != nil {
		return nil, err
	}
	if f.manifest == "" {
		text, err = f.sidecar.KubeadmConfig(phase)
	} else {
		text, err = f.sidecar.SetPhase(manifest, phase)
	}
	return text, cli.FieldMistake(err, fieldFlags...)
}

// placeFlags say where the kube-apiserver is.
type placeFlags struct {
	sidecarFlags
	deployment, kubeconfig, management, state string
	timeout                                   time.Duration
	force, dryRun                             bool
}

func (f *placeFlags) add(set *pflag.FlagSet) {
	f.sidecarFlags.add(set)
	set.StringVar(&f.deployment, "deployment", "", "`NAMESPACE/NAME` of kube-apiserver's Deployment, instead of --manifest")
	set.StringVar(&f.kubeconfig, "kubeconfig", "", "`file`: an administrator's kubeconfig of the cluster whose kube-apiserver it is; default /etc/kubernetes/admin.conf with --manifest")
	set.StringVar(&f.state, "state", "", "`directory` for the manifest of the phase before, on the file system of --manifest; default the directory causeway-egress beside that of the manifests")
	set.StringVar(&f.management, "management-kubeconfig", "", "`file`: a kubeconfig of the cluster that has the Deployment")
	cli.Exclude(set, "manifest", "deployment")
	set.DurationVar(&f.timeout, "timeout", 5*time.Minute, "how long kube-apiserver may take to work again")
	set.BoolVar(&f.force, "force", false, "switch though the report says that the new way fails; it goes back all the same if more fails afterwards")
	set.BoolVar(&f.dryRun, "dry-run", false, "print the report and the change, and change nothing")
}

func (f *placeFlags) check() error {
	namespace, name, _ := strings.Cut(f.deployment, "/")
	switch {
	case f.deployment != "" && (len(validation.IsDNS1123Label(namespace)) > 0 || len(validation.IsDNS1123Subdomain(name)) > 0):
		return cli.Mistake("--deployment %q is not NAMESPACE/NAME", f.deployment)
	case f.manifest+f.deployment == "":
		return cli.Mistake("one of --manifest and --deployment must be set")
	case f.deployment != "" && (f.management == "" || f.kubeconfig == ""):
		return cli.Mistake("--deployment goes with --management-kubeconfig and --kubeconfig")
	case f.timeout <= 0:
		return cli.Mistake("--timeout must be more than zero, such as 5m")
	}
	if err := f.checkPlace(f.manifest != ""); err != nil {
		return err
	}
	if f.manifest != "" {
		beside := filepath.Join(filepath.Dir(filepath.Dir(f.manifest)), "causeway-egress")
		for value, or := range map[*string]string{&f.kubeconfig: "/etc/kubernetes/admin.conf", &f.state: beside, &f.sidecar.CredentialsPath: beside} {
			*value = cmp.Or(*value, or)
		}
		if filepath.Clean(f.state) == filepath.Dir(f.manifest) {
			return cli.Mistake("--state must not be the directory of the manifests: the kubelet runs what is there")
		}
	}
	return nil
}
