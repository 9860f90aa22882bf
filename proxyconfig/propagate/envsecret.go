package propagate

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/causewayproject/causeway/proxyconfig"
)

// AnnotationSource, on the Secret of an EnvSecret, has the UID and the resourceVersion
// of the source that it was last written from.
const AnnotationSource = "causewayproject.github.io/proxy-source"

// EnvSecret is a Secret in a cluster itself: [proxyconfig.Options] refers to it, and it
// has what [proxyconfig.Config.EnvSecretData] returns.
type EnvSecret struct {
	Namespace, Name string
	Config          proxyconfig.Config
	// Source and Version are the UID and the resourceVersion of the object that Config
	// is from. If they are "", any Secret of ours is written.
	Source  types.UID
	Version string
}

// Format writes the Secret's name, whatever the verb.
func (e EnvSecret) Format(f fmt.State, _ rune) {
	_, _ = io.WriteString(f, kindSecret+" "+e.Namespace+"/"+e.Name)
}

// PlanEnv says what is to be written for an EnvSecret. Other keys of the Secret are
// kept. A key that is no longer set is kept with an empty value, which programs take
// for no proxy: a container that refers to a key can't start without it. held is what the API server holds, nil for nothing; if it was written from a
// later version of the source, nothing is to be done, since another process knows more.
// The error is a [*NotOursError].
func PlanEnv(want EnvSecret, held *corev1.Secret, config Config) (Action, error) {
	p := &planner{config: config}
	data := want.Config.EnvSecretData()
	annotations := map[string]string{AnnotationSource: string(want.Source) + "/" + want.Version}
	if held == nil {
		p.action.Writes = []Object{{Secret: &corev1.Secret{
			ObjectMeta: metav1.ObjectMeta{Namespace: want.Namespace, Name: want.Name, Labels: config.Labels(), Annotations: annotations},
			Type:       corev1.SecretTypeOpaque, Data: data,
		}}}
		return p.action, nil
	}
	if p.isOurs(Object{Secret: held}) && !want.isOlder(held.Annotations[AnnotationSource]) {
		next := held.DeepCopy()
		for _, key := range []string{KeyHTTPProxy, KeyHTTPSProxy, KeyNoProxy} {
			if _, ok := next.Data[key]; ok {
				next.Data[key] = nil // for pods that refer to it
			}
		}
		next.Data = mergeMap(next.Data, data)
		if !equality.Semantic.DeepEqual(held.Data, next.Data) {
			next.Annotations = mergeMap(next.Annotations, annotations)
			p.action.Writes = []Object{{Secret: next}}
		}
	}
	return p.action, errors.Join(p.errs...)
}

// isOlder reports whether the annotation tells of a later version of the same source.
func (e EnvSecret) isOlder(annotation string) bool {
	source, version, _ := strings.Cut(annotation, "/")
	mine, errMine := strconv.ParseUint(e.Version, 10, 64)
	theirs, errTheirs := strconv.ParseUint(version, 10, 64)
	return source == string(e.Source) && errMine == nil && errTheirs == nil && mine < theirs
}
