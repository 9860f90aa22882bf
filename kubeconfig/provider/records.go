package provider

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
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

	// Digests are those of the routes, by their data keys. A route that was changed since, by
	// hand or by a restore of a part, is not believed.
	Digests map[string]string `json:"digests,omitempty"`

	Failed   string    `json:"failed,omitempty"`   // digest of the route that fell back
	Failures int       `json:"failures,omitempty"` // how often it did
	RetryAt  time.Time `json:"retryAt,omitzero"`

	Revision   int       `json:"revision,omitempty"`  // of the accepted route: each one has a higher number
	Repairs    int       `json:"repairs,omitempty"`   // how often another program's write was repaired, see mayRepair
	RepairedAt time.Time `json:"repairedAt,omitzero"` // the last time
	Followed   string    `json:"followed,omitempty"`  // resourceVersion of the first Secret that the second one was made of last
	Repaired   string    `json:"repaired,omitempty"`  // resourceVersion of the kubeconfig that it was for: one that still has that was counted, and not written
}

// records is all that the provider remembers about a Secret. Its routes never change.
type records struct {
	secretState
	applied, original *route
	previous          []route // those that worked before applied, the newest first
	stored            *route  // applied, as the memory has it
	condition         *metav1.Condition
}

// createdMark is Created as encodeJSON writes it. Nothing else is believed: the admission policy
// of examples/deploy looks for these bytes, in the Secret that the provider has made.
var createdMark = []byte(`"created":true`)

const (
	recordsSuffix = "-route-records"
	// dataExtension and a digest are the key of a large extension in the memory. In the place of the
	// extension, which several routes may have, they have the key.
	dataExtension  = "causeway-extension-"
	largeExtension = 4 << 10
	maxMemory      = 900 << 10 // bytes; a Secret holds 1 MiB
)

// stateHandedBack is the [AnnotationPhase] of a memory that is about to be deleted: its Secret is
// handed back, or just being so.
const stateHandedBack RouteState = "HandedBack"

// RecordsName returns the name of the Secret with what the provider remembers about a kubeconfig
// Secret: no other program writes it.
func RecordsName(secret string) string { return secret + recordsSuffix }

// memoryManager returns the name of the provider whose memory it is; empty without one.
func memoryManager(memory *corev1.Secret) string {
	if orEmpty(memory).Annotations[AnnotationPhase] == string(stateHandedBack) {
		return ""
	}
	return managerOf(memory)
}

// readRecords reads what is known about s from its memory, or from s itself if a provider of
// before has written that. It skips what it can't read: such a Secret is decorated as if for the
// first time.
func readRecords(s, memory *corev1.Secret) records {
	if memoryManager(memory) == "" && managerOf(s) == "" {
		memory = nil
	}
	r, own := decodeRecords(memory), decodeRecords(s)
	created, revision := r.Created || own.Created, max(r.Revision, revisionOf(s))
	if r.stored = r.applied; memory == nil || own.applied != nil {
		r = own
	}
	r.Created, r.Revision = created, revision
	var conditions []metav1.Condition
	if json.Unmarshal([]byte(orEmpty(s).Annotations[AnnotationConditions]), &conditions) == nil {
		r.condition = meta.FindStatusCondition(conditions, ConditionRoute)
	}
	return r
}

// revisionOf returns the revision of the route that the provider has written into s.
func revisionOf(s *corev1.Secret) int {
	_, text, _ := strings.Cut(orEmpty(s).Annotations[AnnotationRecords], "/")
	n, _ := strconv.Atoi(text) // 0 if it is no number
	return n
}

func setRevision(s *corev1.Secret, n int) {
	metav1.SetMetaDataAnnotation(&s.ObjectMeta, AnnotationRecords, RecordsName(s.Name)+"/"+strconv.Itoa(n))
}

func decodeRecords(s *corev1.Secret) (r records) {
	s = orEmpty(s)
	if json.Unmarshal(s.Data[DataState], &r.secretState) != nil {
		r.secretState = secretState{}
	}
	r.Created = r.Created && bytes.Contains(s.Data[DataState], createdMark)
	decodeRoute(s, DataApplied, r.Digests, &r.applied)
	decodeRoute(s, DataOriginal, r.Digests, &r.original)
	decodeRoute(s, DataPrevious, r.Digests, &r.previous)
	return r
}

// decodeRoute leaves into as it is if the key is not what the provider wrote.
func decodeRoute(s *corev1.Secret, key string, digests map[string]string, into any) {
	text := s.Data[key]
	if len(text) == 0 || hashParts(text) != digests[key] {
		return
	}
	for name, value := range s.Data {
		if name == dataExtension+hashParts(value) {
			text = bytes.ReplaceAll(text, encodeJSON(name), value)
		}
	}
	if !bytes.Contains(text, []byte(dataExtension)) { // one that is missing
		_ = json.Unmarshal(text, into) // the provider's own
	}
}

// encode returns the memory's data. It has as many of the previous routes as there is room for.
func (r records) encode() map[string][]byte {
	data, large := map[string][]byte{}, map[string][]byte{}
	r.Digests = map[string]string{}
	for key, routes := range map[string][]route{DataApplied: listRoute(r.applied), DataOriginal: listRoute(r.original), DataPrevious: r.previous} {
		if len(routes) == 0 {
			continue
		}
		text := encodeJSON(routes)
		if key != DataPrevious {
			text = encodeJSON(routes[0])
		}
		for _, route := range routes {
			if len(route.Extension) > largeExtension {
				name := dataExtension + hashParts(route.Extension)
				large[name], text = route.Extension, bytes.ReplaceAll(text, route.Extension, encodeJSON(name))
			}
		}
		data[key], r.Digests[key] = text, hashParts(text)
	}
	data[DataState] = encodeJSON(r.secretState)
	maps.Copy(data, large)
	size := 0
	for key, value := range data {
		size += len(key) + len(value)
	}
	if n := len(r.previous); size > maxMemory && n > 0 {
		r.previous = r.previous[:n-1]
		return r.encode()
	}
	return data
}

// acceptsStored reports whether the route that is accepted now is the one that the memory has.
func (r records) acceptsStored() bool {
	return r.stored != nil && r.applied != nil && r.applied.sameEntry(*r.stored)
}

func listRoute(r *route) []route {
	if r == nil {
		return nil
	}
	return []route{*r}
}

var recordKeys = []string{DataState, DataApplied, DataOriginal, DataPrevious}

// isRecord reports whether the key of a memory is one of the provider's.
func isRecord(key string) bool {
	return slices.Contains(recordKeys, key) || strings.HasPrefix(key, dataExtension)
}

// removeRecords removes the provider's keys and annotations from s, which must be the caller's
// own copy. The mark of who made it stays, which nobody can set later.
func removeRecords(s *corev1.Secret) {
	created := decodeRecords(s).Created
	for _, key := range recordKeys {
		delete(s.Data, key)
	}
	if created {
		s.Data[DataState] = encodeJSON(secretState{Created: true})
	}
	for _, name := range []string{AnnotationManager, AnnotationPhase, AnnotationConditions, AnnotationRecords} {
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
// it; empty without one. stored.manager knows whose Secret it is.
func managerOf(s *corev1.Secret) string {
	return orEmpty(s).Annotations[AnnotationManager]
}
