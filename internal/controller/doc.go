// Package controller is what the module's controllers on client-go have in
// common: clients, caches, a queue with its workers, leader election, health,
// Events. The errors of a Controller start with its Name.
package controller

import (
	"sync"

	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
)

// Controller is one of them. Its methods are safe for concurrent use; its fields
// are set before the first call.
type Controller struct {
	Name    string // its package, in front of errors
	Program string // names the Lease, if that has no name, and the reporter of Events
	Kube    kubernetes.Interface
	Dynamic dynamic.Interface
	Failed  func(error) // is told of what is tried again. May be nil.
	Health  Health

	versions sync.Map // the last resourceVersion by informer, see [Controller.Version]
}

func (c *Controller) reportError(err error) {
	if c.Failed != nil && err != nil {
		c.Failed(err)
	}
}
