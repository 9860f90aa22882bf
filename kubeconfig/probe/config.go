package probe

import (
	"errors"
	"io/fs"
	"strings"
	"time"

	"github.com/causewayproject/causeway/kubeconfig/internal/entry"
	"github.com/causewayproject/causeway/kubeconfig/internal/field"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// unusable is the Report of a kubeconfig that no route can be made of.
func unusable(config *clientcmdapi.Config, took time.Duration, err error) Report {
	var r Report
	if e, entriesErr := entry.FollowContext(config); entriesErr == nil {
		r.Server, r.Route = e.ServerURL(), "direct"
		if e.Cluster.ProxyURL != "" {
			r.Route = field.WithoutUser(e.Cluster.ProxyURL)
		}
	}
	f := configFinding(err)
	r.Steps = []Step{{Phase: PhaseConfig, Took: took, Cause: shown(f.cause), Advice: shown(f.advice), Err: err}}
	return r
}

func configFinding(err error) finding {
	var (
		invalid *field.Error
		path    *fs.PathError
	)
	switch {
	case errors.As(err, &path):
		return finding{"the kubeconfig names a file that can't be read: " + path.Error(),
			"Bring the file along, or put its contents into the kubeconfig where it works: kubectl config view --raw --flatten."}
	case errors.As(err, &invalid) && invalid.Field == "current-context":
		return finding{"current-context: " + invalid.Err.Error(), "Name one that there is: kubectl config get-contexts lists them, kubectl config use-context sets one."}
	case errors.As(err, &invalid) && strings.HasPrefix(invalid.Field, "Options."):
		return finding{invalid.Field + ": " + invalid.Err.Error(), "Set it in the program that connects, and probe by its Client: the kubeconfig alone can't say it."}
	case errors.As(err, &invalid):
		return finding{invalid.Field + ": " + invalid.Err.Error(), "Correct " + invalid.Field + " in the kubeconfig."}
	}
	return finding{strings.TrimPrefix(err.Error(), "kubeconfig: "), "Correct the kubeconfig."}
}
