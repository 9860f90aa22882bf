package webhook

import (
	"context"
	"encoding/json"
	"net/http"

	admissionv1 "k8s.io/api/admission/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utiljson "k8s.io/apimachinery/pkg/util/json"

	"github.com/causewayproject/causeway/proxyconfig"
)

// A pod has only the fields that the Handler reads: a whole Pod would take longer
// to parse.
type pod struct {
	Metadata metav1.ObjectMeta `json:"metadata"`
	Spec     struct {
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
func (h *Handler) review(ctx context.Context, i *proxyconfig.Injector, req *admissionv1.AdmissionRequest, told *Review) (*admissionv1.AdmissionResponse, error) {
	told.UID, told.Namespace, told.Name = string(req.UID), req.Namespace, req.Name
	told.Operation, told.DryRun = string(req.Operation), req.DryRun != nil && *req.DryRun
	response := &admissionv1.AdmissionResponse{UID: req.UID, Allowed: true}
	create := req.Operation == admissionv1.Create && req.SubResource == ""
	debug := req.Operation == admissionv1.Update && req.SubResource == "ephemeralcontainers"
	if req.Resource.Group != "" || req.Resource.Resource != "pods" || !create && !debug {
		return response, nil
	}
	var p pod
	if err := utiljson.Unmarshal(req.Object.Raw, &p); err != nil {
		return nil, statusErrorf(http.StatusBadRequest, "the object is not a pod: it does not parse")
	}
	if told.Name == "" {
		told.Name = p.Metadata.Name
	}
	if told.Name == "" {
		told.Name = p.Metadata.GenerateName + "*"
	}
	wanted, err := h.wants(ctx, i, req.Namespace, &p.Metadata, told)
	if err != nil || !wanted {
		return response, err
	}
	var ops []operation
	if create {
		ops, told.Injected = patchOperations(i, &p, nil)
	} else {
		var old pod
		if err := utiljson.Unmarshal(req.OldObject.Raw, &old); err != nil {
			return nil, statusErrorf(http.StatusBadRequest, "the old object is not a pod: it does not parse")
		}
		ops, told.Injected = patchOperations(i, &p, &old)
	}
	if len(ops) == 0 {
		return response, nil
	}
	kind := admissionv1.PatchTypeJSONPatch
	response.PatchType = &kind
	response.Patch, err = json.Marshal(ops)
	return response, err
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
