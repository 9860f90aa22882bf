package propagate

import (
	"context"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/causewayproject/causeway/internal/controller"
)

// writeObjects writes the objects in their order. If one to be created already exists,
// it returns that, and does not write the later ones. A write that fails is planned
// anew, never repeated.
func (r *run) writeObjects(ctx context.Context, objects []Object) (found *Object, err error) {
	for _, o := range objects {
		objectKind, meta := o.kindAndMeta()
		kind := WriteUpdate
		if meta.ResourceVersion == "" {
			kind = WriteCreate
		}
		version, err := r.sendWrite(ctx, o, kind)
		if kind == WriteCreate && apierrors.IsAlreadyExists(err) {
			return r.getLive(ctx, o)
		}
		err = r.base.WriteError(string(kind), objectKind, controller.NameOf(meta), err)
		if err == nil {
			r.tracker.noteWrite(o.String(), version, time.Now())
		}
		r.reportWrite(o.String(), kind, err)
		if err != nil {
			return nil, err
		}
	}
	return nil, nil
}

// sendWrite returns the resourceVersion that came of it.
func (r *run) sendWrite(ctx context.Context, o Object, kind Write) (string, error) {
	manager := program + "-" + r.opts.Config.managedBy()
	create, update := metav1.CreateOptions{FieldManager: manager}, metav1.UpdateOptions{FieldManager: manager}
	var (
		made metav1.Object
		err  error
	)
	switch secrets, configMaps := r.base.Kube.CoreV1().Secrets, r.base.Kube.CoreV1().ConfigMaps; {
	case o.Secret != nil && kind == WriteCreate:
		made, err = secrets(o.Secret.Namespace).Create(ctx, o.Secret, create)
	case o.Secret != nil:
		made, err = secrets(o.Secret.Namespace).Update(ctx, o.Secret, update)
	case kind == WriteCreate:
		made, err = configMaps(o.ConfigMap.Namespace).Create(ctx, o.ConfigMap, create)
	default:
		made, err = configMaps(o.ConfigMap.Namespace).Update(ctx, o.ConfigMap, update)
	}
	if err != nil {
		return "", err
	}
	return made.GetResourceVersion(), nil
}

// getLive asks for an object that is in no cache.
func (r *run) getLive(ctx context.Context, o Object) (*Object, error) {
	kind, meta := o.kindAndMeta()
	var (
		found Object
		err   error
	)
	if o.Secret != nil {
		found.Secret, err = r.base.Kube.CoreV1().Secrets(meta.Namespace).Get(ctx, meta.Name, metav1.GetOptions{})
	} else {
		found.ConfigMap, err = r.base.Kube.CoreV1().ConfigMaps(meta.Namespace).Get(ctx, meta.Name, metav1.GetOptions{})
	}
	if err != nil {
		err = r.base.WriteError("get", kind, controller.NameOf(meta), err)
		r.reportError(err)
		return nil, err
	}
	return &found, nil
}

func (r *run) reportError(err error) {
	if failed := r.opts.Hooks.Error; failed != nil {
		failed(err)
	}
}

func (r *run) reportWrite(object string, kind Write, err error) {
	if wrote := r.opts.Hooks.Wrote; wrote != nil {
		wrote(object, kind, err)
	}
}

// recordEvent tells of an Event, once in an hour.
func (r *run) recordEvent(ctx context.Context, about corev1.ObjectReference, e Event) {
	tried, err := r.base.Tell(ctx, controller.Event{
		Type: e.Type, Reason: e.Reason, Message: e.Message, Regarding: about,
		Instance: r.opts.leaderElection().Instance(r.opts.Config.managedBy()),
	}, r.tracker.isNewEvent)
	if tried {
		r.reportWrite(about.Kind+" "+about.Namespace+"/"+about.Name, WriteEvent, err)
	}
}
