package controller

import (
	"errors"
	"fmt"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

const (
	defaultQPS   = 200
	defaultBurst = 400
)

// Clients returns kube and dyn, or makes them of config, which is not written
// to. The errors speak of fields of Options, and start with name.
func Clients(name string, config *rest.Config, kube kubernetes.Interface, dyn dynamic.Interface) (kubernetes.Interface, dynamic.Interface, error) {
	switch {
	case (kube == nil) != (dyn == nil):
		return nil, nil, errors.New(name + ": Options.Kubernetes and Options.Dynamic: want both or neither")
	case kube != nil:
		return kube, dyn, nil
	case config == nil:
		return nil, nil, errors.New(name + ": Options.REST is required, or Kubernetes and Dynamic")
	}
	config = rest.CopyConfig(config)
	if config.QPS == 0 && config.RateLimiter == nil {
		config.QPS, config.Burst = defaultQPS, defaultBurst
	}
	if config.WarningHandler == nil && config.WarningHandlerWithContext == nil {
		config.WarningHandler = rest.NoWarnings{} // and not client-go's log
	}
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return nil, nil, fmt.Errorf("%s: Options.REST: %w", name, err)
	}
	if dyn, err = dynamic.NewForConfigAndClient(config, client); err != nil {
		return nil, nil, fmt.Errorf("%s: Options.REST: %w", name, err)
	}
	if kube, err = kubernetes.NewForConfigAndClient(config, client); err != nil {
		return nil, nil, fmt.Errorf("%s: Options.REST: %w", name, err)
	}
	return kube, dyn, nil
}
