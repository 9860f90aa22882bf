package controller

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	eventsv1 "k8s.io/api/events/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const (
	// EventWindow is the time in which the same Event is told once, unless it has
	// a Version.
	EventWindow = time.Hour

	domain  = "causewayproject.github.io/"
	maxNote = 1024 // bytes, as the API server has it
)

// Event is one to be told. It holds no secret.
type Event struct {
	Type, Reason, Message string
	Regarding             corev1.ObjectReference
	Version               string // the resourceVersion that it concerns, if any
	Instance              string // this process
}

// name is a hash of what it says, so that it is told once, also after a change of leader.
func (e *Event) name(now time.Time) string {
	version := e.Version
	if version == "" {
		version = strconv.FormatInt(now.Unix()/int64(EventWindow/time.Second), 10)
	}
	hash := sha256.Sum256(fmt.Appendf(nil, "%q %q %q %q %q", e.Regarding.UID, e.Type, e.Reason, e.Message, version))
	return fmt.Sprintf("%s.%s", Cut(e.Regarding.Name, 200), hex.EncodeToString(hash[:8]))
}

// Tell creates an Event, unless fresh says that its name is known. It reports
// whether that was tried; one that the leader before has told is not.
// client-go's recorder would leave goroutines that nobody can wait for.
func (c *Controller) Tell(ctx context.Context, e Event, fresh func(name string, now time.Time) bool) (bool, error) {
	now := time.Now()
	name := e.name(now)
	if !fresh(name, now) {
		return false, nil
	}
	_, err := c.Kube.EventsV1().Events(e.Regarding.Namespace).Create(ctx, &eventsv1.Event{
		ObjectMeta:          metav1.ObjectMeta{Namespace: e.Regarding.Namespace, Name: name},
		EventTime:           metav1.NewMicroTime(now),
		ReportingController: domain + c.Program,
		ReportingInstance:   Cut(e.Instance, 128),
		Action:              "Plan",
		Type:                e.Type,
		Reason:              e.Reason,
		Note:                Cut(e.Message, maxNote),
		Regarding:           e.Regarding,
	}, metav1.CreateOptions{})
	if apierrors.IsAlreadyExists(err) {
		return false, nil
	}
	return true, err
}

// Cut shortens text to n bytes, at a rune's border.
func Cut(text string, n int) string {
	if len(text) <= n {
		return text
	}
	return strings.ToValidUTF8(text[:n], "")
}
