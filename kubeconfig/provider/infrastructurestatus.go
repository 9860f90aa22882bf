package provider

import (
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/causewayproject/causeway/internal/clusterapi"
	"github.com/causewayproject/causeway/internal/printable"
)

// Infrastructure is what a Cluster's infrastructure object says of itself. The condition tells
// it as long as the Cluster has no endpoint, and if the infrastructure has failed.
type Infrastructure struct {
	Kind, Name string
	Ready      bool // status.ready, status.initialization.provisioned, or the condition Ready
	Failed     bool // it names an error
	// Reason and Message are those of the error, or of a condition Ready that is not True.
	Reason, Message string
}

// String says how the infrastructure is, in one line.
func (i *Infrastructure) String() string {
	text := "The infrastructure object " + i.Kind + " " + i.Name
	switch {
	case i.Failed:
		text += " has failed"
	case i.Ready:
		return text + " is ready"
	default:
		text += " is not ready"
	}
	for _, part := range []string{i.Reason, i.Message} {
		if part != "" {
			text += ": " + part
		}
	}
	return text
}

// The paths of an infrastructure object's error: those of v1alpha2 to v1beta2.
var (
	errorReasons  = [][]string{{"status", "errorReason"}, {"status", "failureReason"}, {"status", "deprecated", "v1beta1", "failureReason"}}
	errorMessages = [][]string{{"status", "errorMessage"}, {"status", "failureMessage"}, {"status", "deprecated", "v1beta1", "failureMessage"}}
	readyFlags    = [][]string{{"status", "ready"}, {"status", "initialization", "provisioned"}}
	// The conditions of type metav1.Condition come first.
	readyConditions = [][]string{{"status", "v1beta2", "conditions"}, {"status", "conditions"}}
)

// InfrastructureFields returns the paths of an infrastructure object that [ReadCluster]
// reads beside its name. Of the conditions, only the one of type Ready is read.
func InfrastructureFields() [][]string {
	fields := [][]string{{"status", "apiEndpoints"}}
	for _, paths := range [][][]string{errorReasons, errorMessages, readyFlags, readyConditions} {
		fields = append(fields, paths...)
	}
	return fields
}

func readInfrastructure(u *unstructured.Unstructured) *Infrastructure {
	i := &Infrastructure{Kind: u.GetKind(), Name: u.GetName(), Reason: firstText(u, errorReasons), Message: firstText(u, errorMessages)}
	i.Failed = i.Reason+i.Message != ""
	for _, path := range readyFlags {
		ready, _, _ := unstructured.NestedBool(u.Object, path...)
		i.Ready = i.Ready || ready
	}
	for _, path := range readyConditions {
		c := clusterapi.FindCondition(u, "Ready", path...)
		status, _ := c["status"].(string)
		i.Ready = i.Ready || status == "True"
		if i.Reason+i.Message == "" && status != "True" {
			i.Reason, i.Message = oneLine(c["reason"]), oneLine(c["message"])
		}
	}
	return i
}

func firstText(u *unstructured.Unstructured, paths [][]string) string {
	for _, path := range paths {
		value, _, _ := unstructured.NestedFieldNoCopy(u.Object, path...)
		if text := oneLine(value); text != "" {
			return text
		}
	}
	return ""
}

// oneLine returns value, if it is a string, in one line of bounded length.
func oneLine(value any) string {
	text, _ := value.(string)
	return printable.Text(strings.TrimSpace(text), 1<<10)
}
