package kubeconfig

import (
	"errors"
	"io/fs"
	"net/url"
	"strings"
	"time"

	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// serverOf is the API server's URL without what may be secret in it.
func serverOf(e *entries) string {
	u, err := url.Parse(e.cluster.Server)
	if err != nil || u.User != nil || u.Host == "" {
		return ""
	}
	return (&url.URL{Scheme: u.Scheme, Host: u.Host, Path: u.Path}).String()
}

// unusable is the Report of a kubeconfig that no Client can be made of.
func unusable(config *clientcmdapi.Config, took time.Duration, err error) Report {
	var r Report
	if e, entriesErr := currentEntries(config); entriesErr == nil {
		r.Server, r.Route = serverOf(e), "direct"
		if e.cluster.ProxyURL != "" {
			r.Route = withoutUser(e.cluster.ProxyURL)
		}
	}
	f := configFinding(err)
	r.Steps = []Step{{Phase: PhaseConfig, Took: took, Cause: shown(f.cause), Advice: shown(f.advice), Err: err}}
	return r
}

func configFinding(err error) finding {
	var (
		field *FieldError
		path  *fs.PathError
	)
	switch {
	case errors.As(err, &path):
		return finding{"the kubeconfig names a file that can't be read: " + path.Error(),
			"Bring the file along, or put its contents into the kubeconfig where it works: kubectl config view --raw --flatten."}
	case errors.As(err, &field) && field.Field == "current-context":
		return finding{"current-context: " + field.Err.Error(), "Name one that there is: kubectl config get-contexts lists them, kubectl config use-context sets one."}
	case errors.As(err, &field) && strings.HasPrefix(field.Field, "ClientOptions."):
		return finding{field.Field + ": " + field.Err.Error(), "Set it in the program that connects, and probe by its Client: the kubeconfig alone can't say it."}
	case errors.As(err, &field):
		return finding{field.Field + ": " + field.Err.Error(), "Correct " + field.Field + " in the kubeconfig."}
	}
	return finding{strings.TrimPrefix(err.Error(), "kubeconfig: "), "Correct the kubeconfig."}
}
