package webhook

import (
	"cmp"
	"context"
	"encoding/json"
	"io"
	"mime"
	"net/http"
	"strconv"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/causewayproject/causeway/proxyconfig"
)

// A Request of an API server has only the fields that the webhooks of this module read, and
// shares the memory of the body that it was parsed from.
type Request struct {
	UID         string                      `json:"uid"`
	Namespace   string                      `json:"namespace"`
	Name        string                      `json:"name"`
	Operation   admissionv1.Operation       `json:"operation"`
	Resource    metav1.GroupVersionResource `json:"resource"`
	SubResource string                      `json:"subResource"`
	DryRun      *bool                       `json:"dryRun"`
	Object      SharedJSON                  `json:"object"`
	OldObject   SharedJSON                  `json:"oldObject"`
}

// SharedJSON is a value as it is in the text that is parsed; nil for null.
type SharedJSON []byte

// UnmarshalJSON does not copy: an object may have megabytes.
func (s *SharedJSON) UnmarshalJSON(text []byte) error {
	if string(text) != "null" {
		*s = text
	}
	return nil
}

// An Operation of a JSON patch (RFC 6902).
type Operation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value"`
}

// A ReviewFunc decides about a request: it returns the patch, if there is one, of what is
// allowed in any case. An error is the HTTP status 500, and with it the failurePolicy. It is
// an [http.Handler] of AdmissionReviews for a [Server].
type ReviewFunc func(ctx context.Context, req *Request) ([]Operation, error)

// ServeHTTP answers one AdmissionReview.
func (f ReviewFunc) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	answer, err := answerReview(r, f)
	writeAnswer(w, answer, err)
}

func writeAnswer(w http.ResponseWriter, answer []byte, err error) {
	if err != nil {
		status := statusOf(err)
		if status == http.StatusMethodNotAllowed {
			w.Header().Set("Allow", http.MethodPost)
		}
		http.Error(w, err.Error(), status)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(answer) // the API server's failurePolicy knows what to do
}

func answerReview(r *http.Request, review ReviewFunc) ([]byte, error) {
	if r.Method != http.MethodPost {
		return nil, statusErrorf(http.StatusMethodNotAllowed, "got %s, want POST", cutName(r.Method))
	}
	if media, _, err := mime.ParseMediaType(r.Header.Get("Content-Type")); err != nil || media != "application/json" {
		return nil, statusErrorf(http.StatusUnsupportedMediaType, "the content type is not application/json")
	}
	body, err := requestBody(r)
	if err != nil {
		return nil, err
	}
	req, err := parseReview(body)
	if err != nil {
		return nil, err
	}
	response := &admissionv1.AdmissionResponse{UID: types.UID(req.UID), Allowed: true}
	patch, err := review(r.Context(), req)
	if err != nil {
		return nil, err
	}
	if len(patch) > 0 {
		response.PatchType = new(admissionv1.PatchTypeJSONPatch)
		if response.Patch, err = json.Marshal(patch); err != nil {
			return nil, err
		}
	}
	return json.Marshal(admissionv1.AdmissionReview{
		TypeMeta: metav1.TypeMeta{APIVersion: admissionv1.SchemeGroupVersion.String(), Kind: "AdmissionReview"},
		Response: response,
	})
}

// requestBody returns the body. A Server has it in memory.
func requestBody(r *http.Request) ([]byte, error) {
	if whole, ok := r.Body.(wholeBody); ok {
		return whole.bytes, nil
	}
	body, err := io.ReadAll(io.LimitReader(r.Body, maxBody+1))
	switch {
	case err != nil:
		return nil, statusErrorf(http.StatusBadRequest, "read the body: %w", err)
	case len(body) > maxBody:
		return nil, errTooLarge
	}
	return body, nil
}

// maxName is the longest name of Kubernetes. Answers and logs repeat names.
const maxName = 253

func cutName(name string) string { return name[:min(len(name), maxName)] }

func parseReview(body []byte) (*Request, error) {
	var review struct {
		APIVersion string   `json:"apiVersion"`
		Kind       string   `json:"kind"`
		Request    *Request `json:"request"`
	}
	// A parser's error may have a piece of the body in it, and that a secret.
	if err := utiljson.Unmarshal(body, &review); err != nil {
		return nil, statusErrorf(http.StatusBadRequest, "the body is not an AdmissionReview: it does not parse")
	}
	if review.APIVersion != admissionv1.SchemeGroupVersion.String() || review.Kind != "AdmissionReview" {
		return nil, statusErrorf(http.StatusBadRequest, "the body is not an AdmissionReview of admission.k8s.io/v1")
	}
	req := review.Request
	if req == nil || req.UID == "" {
		return nil, statusErrorf(http.StatusBadRequest, "the AdmissionReview has no request with a uid")
	}
	for _, name := range []string{req.UID, req.Namespace, req.Name, string(req.Operation), req.SubResource} {
		if len(name) > maxName {
			return nil, statusErrorf(http.StatusBadRequest, "uid, namespace, name, operation or subResource has more than %d bytes", maxName)
		}
	}
	return req, nil
}

// A pod has only the fields that the Handler reads: a whole Pod would take longer
// to parse, and more memory.
type pod struct {
	Metadata struct {
		Name         string            `json:"name"`
		GenerateName string            `json:"generateName"`
		Labels       map[string]string `json:"labels"`
		Annotations  struct {
			Mirror *string `json:"kubernetes.io/config.mirror"` // corev1.MirrorPodAnnotationKey
		} `json:"annotations"`
	} `json:"metadata"`
	Spec struct {
		InitContainers      []container `json:"initContainers"`
		Containers          []container `json:"containers"`
		EphemeralContainers []container `json:"ephemeralContainers"`
	} `json:"spec"`
}

type container struct {
	Name string          `json:"name"`
	Env  []corev1.EnvVar `json:"env"`
}

// maxContainers bounds the answer, which has up to six variables for each.
const maxContainers = 1024

// review decides about one request that was understood.
func (h *Handler) review(i *proxyconfig.Injector, req *Request, told *Review) (patch []Operation, err error) {
	told.UID, told.Namespace, told.Name = req.UID, req.Namespace, req.Name
	told.Operation, told.DryRun = string(req.Operation), req.DryRun != nil && *req.DryRun
	create := req.Operation == admissionv1.Create && req.SubResource == ""
	debug := req.Operation == admissionv1.Update && req.SubResource == "ephemeralcontainers"
	if req.Resource.Group != "" || req.Resource.Resource != "pods" || !create && !debug {
		return nil, nil
	}
	var p pod
	if err := utiljson.Unmarshal(req.Object, &p); err != nil {
		return nil, statusErrorf(http.StatusBadRequest, "the object is not a pod: it does not parse")
	}
	if n := len(p.Spec.InitContainers) + len(p.Spec.Containers) + len(p.Spec.EphemeralContainers); n > maxContainers {
		return nil, statusErrorf(http.StatusRequestEntityTooLarge, "%d containers, more than %d", n, maxContainers)
	}
	told.Name = cmp.Or(told.Name, p.Metadata.Name, p.Metadata.GenerateName+"*")
	meta := &metav1.ObjectMeta{Labels: p.Metadata.Labels}
	if mirror := p.Metadata.Annotations.Mirror; mirror != nil {
		meta.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: *mirror}
	}
	wanted := false
	if wanted, told.Reason = i.Wants(proxyconfig.Namespace{Name: req.Namespace}, meta); !wanted {
		return nil, nil
	}
	missing := func(c container) []corev1.EnvVar {
		return h.optionalUntilThere(req.Namespace, i.Missing(c.Env))
	}
	if create {
		patch, told.Injected = patchOperations(missing, &p, nil)
	} else {
		var old pod
		if err := utiljson.Unmarshal(req.OldObject, &old); err != nil {
			return nil, statusErrorf(http.StatusBadRequest, "the old object is not a pod: it does not parse")
		}
		patch, told.Injected = patchOperations(missing, &p, &old)
	}
	return patch, nil
}

// optionalUntilThere makes the references optional for which Options.HasSecret knows no
// Secret. It may write to vars, and not through their pointers.
func (h *Handler) optionalUntilThere(namespace string, vars []corev1.EnvVar) []corev1.EnvVar {
	if h.opts.HasSecret == nil {
		return vars
	}
	for n := range vars {
		if from := vars[n].ValueFrom; from != nil && !h.opts.HasSecret(namespace, from.SecretKeyRef.Name, from.SecretKeyRef.Key) {
			vars[n] = *vars[n].DeepCopy()
			vars[n].ValueFrom.SecretKeyRef.Optional = new(true)
		}
	}
	return vars
}

// patchOperations returns those for a pod that is created or, if there was an old one,
// for the ephemeral containers that it has not had: the others can't be changed,
// and a patch of one would have the request refused.
func patchOperations(missingOf func(container) []corev1.EnvVar, p, old *pod) (ops []Operation, injected []string) {
	add := func(list string, containers []container, had map[string]bool) {
		for n, c := range containers {
			if missing := missingOf(c); !had[c.Name] && len(missing) > 0 {
				ops = append(ops, toEnv("/spec/"+list+"/"+strconv.Itoa(n)+"/env", c.Env, missing)...)
				injected = append(injected, c.Name)
			}
		}
	}
	had := map[string]bool{}
	if old != nil {
		for _, c := range old.Spec.EphemeralContainers {
			had[c.Name] = true
		}
	} else {
		add("initContainers", p.Spec.InitContainers, nil)
		add("containers", p.Spec.Containers, nil)
	}
	add("ephemeralContainers", p.Spec.EphemeralContainers, had)
	return ops, injected
}

// toEnv appends to a list, or makes it: "-" needs a list that exists.
func toEnv(path string, env, missing []corev1.EnvVar) []Operation {
	if len(env) == 0 {
		return []Operation{{Op: "add", Path: path, Value: missing}}
	}
	ops := make([]Operation, len(missing))
	for n, v := range missing {
		ops[n] = Operation{Op: "add", Path: path + "/-", Value: v}
	}
	return ops
}
