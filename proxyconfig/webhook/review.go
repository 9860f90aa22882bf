package webhook

import (
	"context"
	"encoding/json"
	"net/http"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/causewayproject/causeway/proxyconfig"
)

// A request has only the fields that the Handler reads, and shares the memory of the
// body that it was parsed from.
type request struct {
	UID         string                      `json:"uid"`
	Namespace   string                      `json:"namespace"`
	Name        string                      `json:"name"`
	Operation   admissionv1.Operation       `json:"operation"`
	Resource    metav1.GroupVersionResource `json:"resource"`
	SubResource string                      `json:"subResource"`
	DryRun      *bool                       `json:"dryRun"`
	Object      sharedJSON                  `json:"object"`
	OldObject   sharedJSON                  `json:"oldObject"`
}

// sharedJSON is a value as it is in the text that is parsed; nil for null.
type sharedJSON []byte

// UnmarshalJSON does not copy: a pod may have megabytes.
func (s *sharedJSON) UnmarshalJSON(text []byte) error {
	if string(text) != "null" {
		*s = text
	}
	return nil
}

func parseReview(body []byte) (*request, error) {
	var review struct {
		APIVersion string   `json:"apiVersion"`
		Kind       string   `json:"kind"`
		Request    *request `json:"request"`
	}
	// A parser's error may have a piece of the body in it, and that a secret.
	if err := utiljson.Unmarshal(body, &review); err != nil {
		return nil, statusErrorf(http.StatusBadRequest, "the body is not an AdmissionReview: it does not parse")
	}
	if review.APIVersion != admissionv1.SchemeGroupVersion.String() || review.Kind != "AdmissionReview" {
		return nil, statusErrorf(http.StatusBadRequest, "the body is not an AdmissionReview of admission.k8s.io/v1")
	}
	if review.Request == nil || review.Request.UID == "" {
		return nil, statusErrorf(http.StatusBadRequest, "the AdmissionReview has no request with a uid")
	}
	return review.Request, nil
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
	Name    string                 `json:"name"`
	Env     []corev1.EnvVar        `json:"env"`
	EnvFrom []corev1.EnvFromSource `json:"envFrom"`
}

// review decides about one request that was understood.
func (h *Handler) review(ctx context.Context, i *proxyconfig.Injector, req *request, told *Review) (*admissionv1.AdmissionResponse, error) {
	told.UID, told.Namespace, told.Name = req.UID, req.Namespace, req.Name
	told.Operation, told.DryRun = string(req.Operation), req.DryRun != nil && *req.DryRun
	response := &admissionv1.AdmissionResponse{UID: types.UID(req.UID), Allowed: true}
	create := req.Operation == admissionv1.Create && req.SubResource == ""
	debug := req.Operation == admissionv1.Update && req.SubResource == "ephemeralcontainers"
	if req.Resource.Group != "" || req.Resource.Resource != "pods" || !create && !debug {
		return response, nil
	}
	var p pod
	if err := utiljson.Unmarshal(req.Object, &p); err != nil {
		return nil, statusErrorf(http.StatusBadRequest, "the object is not a pod: it does not parse")
	}
	if n := len(p.Spec.InitContainers) + len(p.Spec.Containers) + len(p.Spec.EphemeralContainers); n > maxContainers {
		return nil, statusErrorf(http.StatusRequestEntityTooLarge, "%d containers, more than %d", n, maxContainers)
	}
	if told.Name == "" {
		told.Name = p.Metadata.Name
	}
	if told.Name == "" {
		told.Name = p.Metadata.GenerateName + "*"
	}
	meta := &metav1.ObjectMeta{Labels: p.Metadata.Labels}
	if mirror := p.Metadata.Annotations.Mirror; mirror != nil {
		meta.Annotations = map[string]string{corev1.MirrorPodAnnotationKey: *mirror}
	}
	wanted, err := h.wants(ctx, i, req.Namespace, meta, told)
	if err != nil || !wanted {
		return response, err
	}
	missing := func(c container) []corev1.EnvVar {
		return h.optionalUntilThere(req.Namespace, i.Missing(c.Env, c.EnvFrom))
	}
	var ops []operation
	if create {
		ops, told.Injected = patchOperations(missing, &p, nil)
	} else {
		var old pod
		if err := utiljson.Unmarshal(req.OldObject, &old); err != nil {
			return nil, statusErrorf(http.StatusBadRequest, "the old object is not a pod: it does not parse")
		}
		ops, told.Injected = patchOperations(missing, &p, &old)
	}
	if len(ops) == 0 {
		return response, nil
	}
	kind := admissionv1.PatchTypeJSONPatch
	response.PatchType = &kind
	response.Patch, err = json.Marshal(ops)
	return response, err
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
			yes := true
			vars[n].ValueFrom.SecretKeyRef.Optional = &yes
		}
	}
	return vars
}

func (h *Handler) wants(ctx context.Context, i *proxyconfig.Injector, namespace string, meta *metav1.ObjectMeta, told *Review) (wanted bool, err error) {
	ns := proxyconfig.Namespace{Name: namespace}
	if h.opts.NamespaceLabels != nil {
		if ns.Labels, err = h.opts.NamespaceLabels(ctx, namespace); err != nil {
			return false, statusErrorf(http.StatusInternalServerError, "labels of namespace %s: %w", namespace, err)
		}
	}
	wanted, told.Reason = i.Wants(ns, meta)
	return wanted, nil
}
