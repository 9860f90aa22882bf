package apitest

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/client-go/kubernetes/scheme"
)

// ServeHTTP answers a request.
func (s *Server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	s.mu.Lock()
	fault := s.fault
	if r.Method != http.MethodGet {
		s.requests, s.bodies = append(s.requests, r), append(s.bodies, string(body))
		s.wakeWaitersLocked()
	}
	s.mu.Unlock()
	if fault != nil {
		if code := fault(r); code != 0 {
			writeStatus(w, code, cmp.Or(faultReasons[code], "InternalError"))
			return
		}
	}
	parts := strings.Split(strings.Trim(r.URL.Path, "/"), "/")
	if parts[0] == "apis" && len(parts) <= 3 || parts[0] == "api" && len(parts) <= 2 {
		s.answerDiscovery(w, parts)
		return
	}
	if parts[0] == "apis" {
		parts = parts[1:]
	}
	parts = parts[2:] // group and version, or api and v1
	var key Key
	if parts[0] == "namespaces" && len(parts) > 2 {
		key.Namespace, parts = parts[1], parts[2:]
	}
	key.Resource = parts[0]
	if len(parts) > 1 {
		key.Name = parts[1]
	}
	switch {
	case r.Method == http.MethodGet && r.URL.Query().Get("watch") != "":
		s.answerWatch(w, r, key)
	case r.Method == http.MethodGet && key.Name == "":
		s.answerList(w, r, key)
	default:
		s.answerObject(w, r, key, body)
	}
}

// faultReasons are those of some status codes.
var faultReasons = map[int]string{
	http.StatusUnprocessableEntity: "Invalid", http.StatusForbidden: "Forbidden", http.StatusConflict: "Conflict",
	http.StatusGone: "Expired", http.StatusTooManyRequests: "TooManyRequests",
}

func (s *Server) answerDiscovery(w http.ResponseWriter, parts []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch strings.Join(parts, "/") {
	case "api":
		writeJSON(w, metav1.APIVersions{Versions: []string{"v1"}})
		return
	case "api/v1":
		writeJSON(w, coreResources)
		return
	case "apis":
		var list metav1.APIGroupList
		for name, g := range s.served {
			list.Groups = append(list.Groups, apiGroup(name, g))
		}
		writeJSON(w, list)
		return
	}
	g, ok := s.served[parts[1]]
	switch {
	case !ok || len(parts) == 3 && parts[2] != g.Version:
		writeStatus(w, http.StatusNotFound, "NotFound")
	case len(parts) == 2:
		writeJSON(w, apiGroup(parts[1], g))
	default:
		list := metav1.APIResourceList{GroupVersion: parts[1] + "/" + g.Version}
		for name, kind := range g.Kinds {
			list.APIResources = append(list.APIResources, metav1.APIResource{Name: name, Kind: kind, Namespaced: true})
		}
		writeJSON(w, list)
	}
}

var coreResources = metav1.APIResourceList{GroupVersion: "v1", APIResources: []metav1.APIResource{
	{Name: "secrets", Kind: "Secret", Namespaced: true},
	{Name: "configmaps", Kind: "ConfigMap", Namespaced: true},
	{Name: "namespaces", Kind: "Namespace"},
}}

func apiGroup(name string, g Group) metav1.APIGroup {
	v := metav1.GroupVersionForDiscovery{GroupVersion: name + "/" + g.Version, Version: g.Version}
	return metav1.APIGroup{Name: name, Versions: []metav1.GroupVersionForDiscovery{v}, PreferredVersion: v}
}

// selectedBy returns whether a request for key is about an object.
func selectedBy(r *http.Request, key Key) func(of Key, u *unstructured.Unstructured) bool {
	query := r.URL.Query()
	name, named := strings.CutPrefix(query.Get("fieldSelector"), "metadata.name=")
	selector, err := labels.Parse(query.Get("labelSelector"))
	return func(of Key, u *unstructured.Unstructured) bool {
		return of.Resource == key.Resource && (key.Namespace == "" || key.Namespace == of.Namespace) &&
			(!named || name == of.Name) && err == nil && selector.Matches(labels.Set(u.GetLabels()))
	}
}

// listKinds are the versions and kinds of lists that typed clients read.
var listKinds = map[string][2]string{
	"secrets":        {"v1", "SecretList"},
	"configmaps":     {"v1", "ConfigMapList"},
	"namespaces":     {"v1", "NamespaceList"},
	"nodes":          {"v1", "NodeList"},
	"services":       {"v1", "ServiceList"},
	"servicecidrs":   {"networking.k8s.io/v1", "ServiceCIDRList"},
	"clusters":       {"v1", "ClusterList"},
	"endpointslices": {"discovery.k8s.io/v1", "EndpointSliceList"},
}

func (s *Server) answerList(w http.ResponseWriter, r *http.Request, key Key) {
	s.mu.Lock()
	defer s.mu.Unlock()
	path := func(of Key) string { return of.Namespace + "/" + of.Name }
	var sorted []Key
	isSelected := selectedBy(r, key)
	for of, u := range s.objects {
		if isSelected(of, u) {
			sorted = append(sorted, of)
		}
	}
	slices.SortFunc(sorted, func(a, b Key) int { return cmp.Compare(path(a), path(b)) })
	metadata := map[string]any{"resourceVersion": strconv.Itoa(s.version)}
	limit, _ := strconv.Atoi(r.URL.Query().Get("limit"))
	items, last := []any{}, r.URL.Query().Get("continue")
	for _, of := range sorted {
		if path(of) <= last {
			continue
		}
		if limit > 0 && len(items) == limit {
			metadata["continue"] = last
			break
		}
		items, last = append(items, s.objects[of].Object), path(of)
	}
	kind := listKinds[key.Resource]
	writeJSON(w, map[string]any{
		"apiVersion": cmp.Or(kind[0], "v1"), "kind": cmp.Or(kind[1], "List"), "items": items, "metadata": metadata,
	})
}

func (s *Server) answerWatch(w http.ResponseWriter, r *http.Request, key Key) {
	if r.URL.Query().Get("sendInitialEvents") != "" {
		writeStatus(w, http.StatusUnprocessableEntity, "Invalid") // the client lists instead
		return
	}
	from, _ := strconv.Atoi(r.URL.Query().Get("resourceVersion"))
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(http.StatusOK)
	s.mu.Lock()
	gaps := s.gaps
	s.mu.Unlock()
	isSelected := selectedBy(r, key)
	for {
		w.(http.Flusher).Flush()
		s.mu.Lock()
		if from < s.oldest || gaps < s.gaps {
			s.mu.Unlock()
			json.NewEncoder(w).Encode(map[string]any{"type": "ERROR", "object": statusOf(http.StatusGone, "Expired")})
			return
		}
		var next []change
		if !s.heldResources[key.Resource] {
			first, _ := slices.BinarySearchFunc(s.events, from+1, func(c change, version int) int { return c.version - version })
			next = slices.DeleteFunc(slices.Clone(s.events[first:]), func(c change) bool { return !isSelected(c.key, c.object) })
			from = s.version
		}
		tick := s.changed
		s.mu.Unlock()
		for _, c := range next {
			json.NewEncoder(w).Encode(map[string]any{"type": c.kind, "object": c.object.Object})
		}
		if len(next) > 0 {
			continue
		}
		select {
		case <-tick:
		case <-r.Context().Done():
			return
		}
	}
}

// answerObject is what concerns one object.
func (s *Server) answerObject(w http.ResponseWriter, r *http.Request, key Key, body []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	sent := &unstructured.Unstructured{Object: map[string]any{}}
	if len(body) > 0 {
		if err := decode(body, &sent.Object); err != nil {
			writeStatus(w, http.StatusBadRequest, "BadRequest")
			return
		}
	}
	if r.Method == http.MethodPost {
		key.Name = sent.GetName()
	}
	has := s.objects[key]
	code, reason := checkPreconditions(r.Method, has, sent)
	if code != 0 {
		writeStatus(w, code, reason)
		return
	}
	switch r.Method {
	case http.MethodGet:
		writeJSON(w, has.Object)
		return
	case http.MethodPost, http.MethodPut:
		s.putObjectLocked(key, sent)
		writeJSON(w, sent.Object)
	case http.MethodDelete:
		s.removeObjectLocked(key)
		writeJSON(w, statusOf(http.StatusOK, ""))
	case http.MethodPatch:
		u := has.DeepCopy()
		s.applyConditionLocked(r.URL.Query().Get("fieldManager"), key, u, sent)
		s.putObjectLocked(key, u)
		writeJSON(w, u.Object)
	}
	s.writes[r.Method+" "+key.Resource]++
	s.wakeWaitersLocked()
}

// decode reads JSON, and the protobuf that typed clients send by default.
func decode(body []byte, object *map[string]any) error {
	if bytes.HasPrefix(body, []byte("k8s\x00")) {
		typed, gvk, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil)
		if err != nil {
			return err
		}
		typed.GetObjectKind().SetGroupVersionKind(*gvk)
		if body, err = json.Marshal(typed); err != nil {
			return err
		}
	}
	return json.Unmarshal(body, object)
}

// applyConditionLocked does what a server-side apply of one condition does, or of none: what
// the manager has applied before, and does not send any more, is taken away.
func (s *Server) applyConditionLocked(manager string, key Key, u, sent *unstructured.Unstructured) {
	owner := fmt.Sprint(manager, key)
	for _, path := range [][]string{{"status", "conditions"}, {"status", "v1beta2", "conditions"}} {
		if list, ok, _ := unstructured.NestedSlice(sent.Object, path...); ok {
			entry := list[0].(map[string]any)
			s.applied[owner] = entry["type"]
			MergeCondition(u, path, entry)
			return
		}
		if list, ok, _ := unstructured.NestedSlice(u.Object, path...); ok && s.applied[owner] != nil {
			list = slices.DeleteFunc(list, func(c any) bool { return c.(map[string]any)["type"] == s.applied[owner] })
			unstructured.SetNestedSlice(u.Object, list, path...)
		}
	}
}

// MergeCondition puts a condition into the list at path, as a server-side apply
// does.
func MergeCondition(u *unstructured.Unstructured, path []string, entry map[string]any) {
	list, _, _ := unstructured.NestedSlice(u.Object, path...)
	list = slices.DeleteFunc(list, func(c any) bool { return c.(map[string]any)["type"] == entry["type"] })
	unstructured.SetNestedSlice(u.Object, append(list, entry), path...)
}

func checkPreconditions(method string, has, sent *unstructured.Unstructured) (code int, reason string) {
	version, uid := sent.GetResourceVersion(), string(sent.GetUID())
	if method == http.MethodDelete {
		version, _, _ = unstructured.NestedString(sent.Object, "preconditions", "resourceVersion")
		uid, _, _ = unstructured.NestedString(sent.Object, "preconditions", "uid")
	}
	switch {
	case method == http.MethodPost && has != nil:
		return http.StatusConflict, "AlreadyExists"
	case method == http.MethodPost:
	case has == nil:
		return http.StatusNotFound, "NotFound"
	case version != "" && version != has.GetResourceVersion(), uid != "" && uid != string(has.GetUID()):
		return http.StatusConflict, "Conflict"
	}
	return 0, ""
}

func statusOf(code int, reason string) map[string]any {
	return map[string]any{
		"apiVersion": "v1", "kind": "Status", "status": map[bool]string{true: "Success", false: "Failure"}[code == http.StatusOK],
		"reason": reason, "code": code, "message": fmt.Sprint("the server says ", reason),
	}
}

func writeStatus(w http.ResponseWriter, code int, reason string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	json.NewEncoder(w).Encode(statusOf(code, reason))
}

func writeJSON(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	json.NewEncoder(w).Encode(v)
}
