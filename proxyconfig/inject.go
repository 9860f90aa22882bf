package proxyconfig

import (
	"fmt"
	"io"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/causewayproject/causeway/internal/quote"
)

// Options are what Inject puts into pods, and into which.
type Options struct {
	// Config is what the pods get. A value that is empty is no variable. NoProxy
	// may have 16 KiB.
	Config Config

	// Secret is the name of a Secret in the pod's own namespace with the data of
	// [Config.EnvSecretData]. A proxy of Config that has user or password
	// gets into pods as a reference to it, and is not copied: the pod does not
	// show it to its readers. The user and password in Config then do not
	// matter, "http://secret@proxy.example.com:3128" will do. A proxy without
	// them is always plain, and so is the list.
	//
	// Nothing here creates the Secret: controllers.PodSecretReconciler does, or people.
	// A pod in a namespace without it waits (CreateContainerConfigError, which names
	// the Secret) and starts when it exists. Containers read it when they start: a new
	// password reaches them by a restart.
	//
	// Empty: user and password need Plain.
	Secret string
	// Plain copies user and password into pods.
	Plain bool

	// Exact leaves NO_PROXY as Config has it. Without it,
	// $(KUBERNETES_SERVICE_HOST) is added, which the kubelet replaces by the
	// address at which programs in a pod reach their API server.
	Exact bool

	// Scope is which pods get it. Its zero value leaves out kube-system, mirror
	// pods, and what has the label LabelInject "false".
	Scope Scope
}

// apiServer is a variable that the kubelet sets in every container. It is in the
// list whole or, in a pod that it doesn't set it in, an entry that matches
// nothing.
const apiServer = "$(KUBERNETES_SERVICE_HOST)"

// An Injector is Options, compiled. It is immutable, and safe for
// concurrent use.
type Injector struct {
	proxies []corev1.EnvVar // both cases of each
	list    []corev1.EnvVar
	scope   scope
}

// NewInjector compiles options. It returns an error that wraps a [*FieldError]
// for what is contradictory or can't be used; there is no password in it.
func NewInjector(opts Options) (*Injector, error) {
	if err := opts.checkOptions(); err != nil {
		return nil, err
	}
	s, err := opts.Scope.compile()
	if err != nil {
		return nil, err
	}
	i := &Injector{scope: s}
	for _, v := range opts.Config.upperCaseVars() {
		switch {
		case v.Name == noProxy:
		case opts.Plain || !strings.Contains(v.Value, "@"):
			i.proxies = append(i.proxies, bothCases(corev1.EnvVar{Name: v.Name, Value: quote.Container(v.Value)})...)
		case opts.Secret == "":
			return nil, fieldErrorf("Config."+fieldNames[v.Name], "it has user or password: these take a Secret's name, or Plain")
		default:
			i.proxies = append(i.proxies, bothCases(secretVar(v.Name, opts.Secret))...)
		}
	}
	if list := opts.noProxy(); list != "" {
		i.list = bothCases(corev1.EnvVar{Name: noProxy, Value: list})
	}
	return i, nil
}

// Format writes only the type, whatever the verb: with Plain there is a password
// in it.
func (i Injector) Format(f fmt.State, _ rune) { _, _ = io.WriteString(f, "proxyconfig.Injector{...}") }

func (o *Options) checkOptions() error {
	if o.Secret != "" {
		if problems := validation.IsDNS1123Subdomain(o.Secret); len(problems) > 0 {
			return fieldErrorf("Secret", "not the name of a Secret: %s", problems[0])
		}
	}
	if o.Secret != "" && o.Plain {
		return fieldErrorf("Secret", "there is one, and Plain is set: want one of them")
	}
	if len(o.Config.NoProxy) > maxInjected {
		return fieldErrorf("Config.NoProxy", "%d bytes: pods have the list twice in each container, and %d at most are put into them; write networks and domains", len(o.Config.NoProxy), maxInjected)
	}
	return o.Config.Validate()
}

// maxInjected keeps a pod of 32 containers below etcd's limit of 1.5 MiB.
const maxInjected = 16 << 10

func (o *Options) noProxy() string {
	list := quote.Container(o.Config.NoProxy)
	switch {
	case o.Config.HTTPProxy == "" && o.Config.HTTPSProxy == "", o.Exact:
		return list
	case strings.TrimSpace(list) == "":
		return apiServer
	case strings.TrimSpace(list) == "*": // programs know it only as the whole list
		return list
	}
	return strings.TrimRight(list, ", ") + "," + apiServer
}

// proxyNames are variables that name a proxy, in lower case.
var proxyNames = [...]string{"http_proxy", "https_proxy", "all_proxy"}

// Missing returns the variables that a container with env lacks, in the order in which
// to append them to env. The container's own variables then expand as before. The
// caller may keep the result, but not write through its pointers.
//
// A container with one of HTTP_PROXY, HTTPS_PROXY and ALL_PROXY in either case,
// even with an empty value, has a configuration of its own and lacks nothing: a
// NO_PROXY that is not its own would bypass its proxy, an HTTPS_PROXY would
// count more than its ALL_PROXY. One that has only NO_PROXY, in either case,
// keeps that and gets the proxies. Having got them, it lacks nothing. Ours count more
// than what envFrom of the container sets.
func (i *Injector) Missing(env []corev1.EnvVar) []corev1.EnvVar {
	if slices.ContainsFunc(env, isProxy) {
		return nil
	}
	if len(i.list) == 0 || slices.ContainsFunc(env, isNoProxy) {
		return slices.Clone(i.proxies)
	}
	return slices.Concat(i.proxies, i.list)
}

func isProxy(v corev1.EnvVar) bool { return slices.Contains(proxyNames[:], strings.ToLower(v.Name)) }

func isNoProxy(v corev1.EnvVar) bool { return strings.EqualFold(v.Name, "no_proxy") }

// Inject puts the variables into all containers of spec: init containers,
// sidecars, ephemeral ones. It returns the names of the containers that it changed;
// a second call changes nothing. Wants says whether the pod is to have them.
func (i *Injector) Inject(spec *corev1.PodSpec) []string {
	var changed []string
	add := func(c *corev1.EphemeralContainerCommon) {
		if missing := i.Missing(c.Env); len(missing) > 0 {
			// A new array: the caller's slice may share its own with another slice.
			c.Env = slices.Clip(c.Env)
			for _, v := range missing {
				c.Env = append(c.Env, *v.DeepCopy())
			}
			changed = append(changed, c.Name)
		}
	}
	for n := range spec.InitContainers {
		add((*corev1.EphemeralContainerCommon)(&spec.InitContainers[n]))
	}
	for n := range spec.Containers {
		add((*corev1.EphemeralContainerCommon)(&spec.Containers[n]))
	}
	for n := range spec.EphemeralContainers {
		add(&spec.EphemeralContainers[n].EphemeralContainerCommon)
	}
	return changed
}
