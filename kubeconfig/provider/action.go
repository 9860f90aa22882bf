package provider

import (
	"cmp"
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/causewayproject/causeway/kubeconfig/probe"
)

// Config is the installation's, and what is known at the moment of the plan.
type Config struct {
	Name     string        // this provider's; "causeway" if empty
	Defaults Settings      // what annotations do not say
	Interval time.Duration // between probes of a route that is in use; a minute if 0; a sixth of it within the grace period; 3 seconds at least

	Now     time.Time         // required
	Results map[string]Result // by Candidate.Key
}

// FieldOwner is the name by which the provider writes Secrets: the API server notes it in their managedFields.
func (c Config) FieldOwner() string { return "kubeconfig-provider-" + c.providerName() }

func (c Config) providerName() string { return cmp.Or(c.Name, "causeway") }

func (c Config) probeInterval() time.Duration {
	if c.Interval <= 0 {
		return time.Minute
	}
	return c.Interval
}

// Result is the answer to a Candidate.
type Result struct {
	Report   probe.Report
	At       time.Time
	Failures int // in a row; 0 if the Report is OK
}

// Candidate is a kubeconfig to probe.
type Candidate struct {
	Key    string // a hash: says nothing of the kubeconfig
	Config *clientcmdapi.Config
	// Extension asks for the way of a Client of package connect, which honours the
	// kubeconfig's extension. Without it, the way is that of a plain client-go.
	Extension bool
	// Secret is the one that the extension names for an https proxy; nil for none. It is one
	// of Plan's arguments, only to be read.
	Secret *corev1.Secret
}

// Options are those to probe c.Config with: c.Options().Run(ctx, c.Config).
func (c Candidate) Options() probe.Options {
	o := probe.Options{Plain: !c.Extension}
	if s := c.Secret; s != nil {
		o.ReadSecret = func(_ context.Context, namespace, name string) (map[string][]byte, error) {
			if s.Namespace != namespace || s.Name != name {
				return nil, fmt.Errorf("provider: the kubeconfig names the Secret %s/%s, which is not the %s of the Cluster", namespace, name, AnnotationRouteSecret)
			}
			return s.Data, nil
		}
	}
	return o
}

// Action is what to do next: probes, then Plan again with their answers; or a
// write, and Plan again with what was written; or nothing before After.
type Action struct {
	// Probe is what has to be probed now, before Plan can say more: probe all, add the answers to
	// Config.Results, and call Plan again with the same objects. Where it is not empty, all else is zero.
	Probe []Candidate
	// Records is what to remember: created if it has no resourceVersion, updated otherwise. It is to be
	// written before the other Secret, so that after a crash nothing is forgotten; or after it if
	// RecordsLast is set: then it only says that the other was written. After a write that fails there
	// is no other.
	Records     *corev1.Secret
	RecordsLast bool
	// Create, Update or Delete is the write; at most one is set. Update carries the resourceVersion that was read,
	// Delete is to be done with that and the UID as preconditions.
	Create, Update, Delete *corev1.Secret
	// Events are to be created once the writes succeeded, or at once if the Action has none.
	Events []Event
	// Condition belongs into the Cluster's status.conditions, so that
	// availabilityGates can name it; nil if nothing is to be said. It equals
	// Cluster.Condition if nothing changed.
	Condition *metav1.Condition
	// Managed says that this provider manages the Secret <cluster>-kubeconfig. Only then its
	// condition may replace that of another writer. Without it, a server-side apply that does
	// not force says whether there is another writer, whose condition then stays.
	Managed bool
	// After is when to plan again if nothing changes. 0: never.
	After time.Duration
}

// Event is one for the Cluster. It holds no secret.
type Event struct {
	Type    string // corev1.EventTypeNormal or Warning
	Reason  string
	Message string
}
