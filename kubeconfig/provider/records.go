package provider

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// RouteState is where a Secret's route is between two routes ([AnnotationPhase]).
type RouteState string

// The states of a route.
const (
	StateProbing    RouteState = "Probing"    // a new route did not pass the probe yet; the one before is in use
	StateGrace      RouteState = "Grace"      // the new route is in use, and watched
	StateReady      RouteState = "Ready"      // the route is in use
	StateFellBack   RouteState = "FellBack"   // the new route failed within the grace period; the one before is in use
	StateRolledBack RouteState = "RolledBack" // AnnotationRollback: the one before is in use
)

// secretState is what the provider remembers about a Secret between two plans.
type secretState struct {
	State   RouteState `json:"phase"`             // the present route's: never StateProbing
	Since   time.Time  `json:"since,omitzero"`    // StateGrace: when it began
	Created bool       `json:"created,omitempty"` // the Secret is the provider's own, see createdMark
	Inputs  string     `json:"inputs,omitempty"`  // what the route in use was made of, if it is the configured one

	// Digests are those of the routes that the Secret keeps, by their data keys. A route that
	// was changed since, by hand or by a restore of a part, is not believed.
	Digests map[string]string `json:"digests,omitempty"`

	Failed   string    `json:"failed,omitempty"`   // digest of the route that fell back
	Failures int       `json:"failures,omitempty"` // how often it did
	RetryAt  time.Time `json:"retryAt,omitzero"`
}

// records is all that the provider keeps in a Secret. Its routes never change.
type records struct {
	secretState
	applied, original *route
	previous          []route // those that worked before applied, the newest first
	condition         *metav1.Condition
}

// createdMark is Created as encodeJSON writes it. Nothing else is believed: the admission policy
// of examples/deploy looks for these bytes.
var createdMark = []byte(`"created":true`)

// readRecords skips records that it can't read: such a Secret is decorated as if for
// the first time.
func readRecords(s *corev1.Secret) records {
	var r records
	if s == nil {
		return r
	}
	if json.Unmarshal(s.Data[DataState], &r.secretState) != nil {
		r.secretState = secretState{}
	}
	r.Created = r.Created && bytes.Contains(s.Data[DataState], createdMark)
	decodeRoute(s, DataApplied, r.Digests, &r.applied)
	decodeRoute(s, DataOriginal, r.Digests, &r.original)
	decodeRoute(s, DataPrevious, r.Digests, &r.previous)
	var conditions []metav1.Condition
	if json.Unmarshal([]byte(s.Annotations[AnnotationConditions]), &conditions) == nil {
		i := slices.IndexFunc(conditions, func(c metav1.Condition) bool { return c.Type == ConditionRoute })
		if i >= 0 {
			r.condition = &conditions[i]
		}
	}
	return r
}

// decodeRoute leaves into as it is if the key is not what the provider wrote.
func decodeRoute(s *corev1.Secret, key string, digests map[string]string, into any) {
	if text := s.Data[key]; len(text) > 0 && hashParts(text) == digests[key] {
		_ = json.Unmarshal(text, into) // the provider's own
	}
}

// writeTo puts r into s, which must be the caller's own copy, with a kubeconfig.
func (r records) writeTo(s *corev1.Secret, manager string, shown RouteState) {
	r.Digests = map[string]string{}
	for key, value := range map[string]any{DataApplied: r.applied, DataOriginal: r.original, DataPrevious: r.previous} {
		delete(s.Data, key)
		if text := encodeJSON(value); string(text) != "null" && string(text) != "[]" {
			s.Data[key], r.Digests[key] = text, hashParts(text)
		}
	}
	s.Data[DataState] = encodeJSON(r.secretState)
	if s.Annotations == nil {
		s.Annotations = map[string]string{}
	}
	s.Annotations[AnnotationManager] = manager
	s.Annotations[AnnotationPhase] = string(shown)
	if delete(s.Annotations, AnnotationConditions); r.condition != nil {
		s.Annotations[AnnotationConditions] = string(encodeJSON([]metav1.Condition{*r.condition}))
	}
}

// removeRecords removes the provider's keys and annotations from s, which must be the
// caller's own copy.
func removeRecords(s *corev1.Secret) {
	for _, key := range []string{DataState, DataApplied, DataOriginal, DataPrevious} {
		delete(s.Data, key)
	}
	for _, name := range []string{AnnotationManager, AnnotationPhase, AnnotationConditions} {
		delete(s.Annotations, name)
	}
}

// encodeJSON returns v as JSON. v must be of a type that always has one.
func encodeJSON(v any) []byte {
	text, err := json.Marshal(v)
	if err != nil {
		panic("provider: " + err.Error())
	}
	return text
}

// hashParts returns a hash that identifies a route or other data. Its input may be
// secret: keep the hash only where that secret is kept, too.
func hashParts(parts ...[]byte) string {
	h := sha256.New()
	for _, p := range parts {
		sum := sha256.Sum256(p)
		_, _ = h.Write(sum[:]) // no error, by its documentation
	}
	return hex.EncodeToString(h.Sum(nil))
}

// managerOf returns what the Secret's annotation says: the name of the provider that manages
// it; empty without one. The planner's knows whose Secret it is.
func managerOf(s *corev1.Secret) string {
	if s == nil {
		return ""
	}
	return s.Annotations[AnnotationManager]
}
