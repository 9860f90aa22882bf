package proxyconfig_test

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"

	"github.com/causewayproject/causeway/proxyconfig"
)

const injectCanary = "hunter2-canary"

var (
	openConfig   = proxyconfig.Config{HTTPProxy: "http://proxy:1", HTTPSProxy: "http://proxy:2", NoProxy: "svc,.local"}
	secretConfig = proxyconfig.Config{HTTPProxy: "http://proxy:1", HTTPSProxy: "http://user:" + injectCanary + "@proxy:2", NoProxy: "svc"}
)

// short writes a variable as NAME=value or NAME=(secret/key), ? for optional.
func short(vars []corev1.EnvVar) []string {
	var lines []string
	for _, v := range vars {
		value := v.Value
		if v.ValueFrom != nil {
			ref := v.ValueFrom.SecretKeyRef
			value += "(" + ref.Name + "/" + ref.Key + ")"
			if ref.Optional != nil {
				value += "?"
			}
		}
		lines = append(lines, v.Name+"="+value)
	}
	return lines
}

func own(names ...string) []corev1.EnvVar {
	var vars []corev1.EnvVar
	for _, name := range names {
		vars = append(vars, corev1.EnvVar{Name: name, Value: "own"})
	}
	return vars
}

func newInjector(t testing.TB, opts proxyconfig.Options) *proxyconfig.Injector {
	t.Helper()
	i, err := proxyconfig.NewInjector(opts)
	if err != nil {
		t.Fatal(err)
	}
	return i
}

func TestInjectValues(t *testing.T) {
	const host = ",$(KUBERNETES_SERVICE_HOST)"
	for _, tt := range []struct {
		name string
		opts proxyconfig.Options
		want []string
	}{
		{"nothing", proxyconfig.Options{}, nil},
		{"a list alone", proxyconfig.Options{Config: proxyconfig.Config{NoProxy: "a"}}, []string{"NO_PROXY=a", "no_proxy=a"}},
		{"one proxy", proxyconfig.Options{Config: proxyconfig.Config{HTTPSProxy: "http://p"}},
			[]string{"HTTPS_PROXY=http://p", "https_proxy=http://p", "NO_PROXY=" + host[1:], "no_proxy=" + host[1:]}},
		{"everything goes around it", proxyconfig.Options{Config: proxyconfig.Config{HTTPProxy: "http://p", NoProxy: "*"}},
			[]string{"HTTP_PROXY=http://p", "http_proxy=http://p", "NO_PROXY=*", "no_proxy=*"}},
		{"a list with a comma at its end", proxyconfig.Options{Config: proxyconfig.Config{HTTPProxy: "http://p", NoProxy: "a, "}},
			[]string{"HTTP_PROXY=http://p", "http_proxy=http://p", "NO_PROXY=a" + host, "no_proxy=a" + host}},
		{"open, exact", proxyconfig.Options{Config: openConfig, Exact: true, Secret: "s"},
			[]string{"HTTP_PROXY=http://proxy:1", "http_proxy=http://proxy:1", "HTTPS_PROXY=http://proxy:2", "https_proxy=http://proxy:2", "NO_PROXY=svc,.local", "no_proxy=svc,.local"}},
		{"a Secret", proxyconfig.Options{Config: secretConfig, Secret: "s"},
			[]string{"HTTP_PROXY=http://proxy:1", "http_proxy=http://proxy:1", "HTTPS_PROXY=(s/HTTPS_PROXY)", "https_proxy=(s/HTTPS_PROXY)", "NO_PROXY=svc" + host, "no_proxy=svc" + host}},
		{"plain, with what the kubelet expands", proxyconfig.Options{Config: proxyconfig.Config{HTTPProxy: "http://u:a$b$@p"}, Plain: true, Exact: true},
			[]string{"HTTP_PROXY=http://u:a$$b$$@p", "http_proxy=http://u:a$$b$$@p"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			spec := &corev1.PodSpec{Containers: []corev1.Container{{Name: "c"}}}
			if err := inject(spec, tt.opts); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(tt.want, short(spec.Containers[0].Env)); diff != "" {
				t.Errorf("want - got +:\n%s", diff)
			}
		})
	}
}

// expand is the kubelet's expansion of a value by what is in Kubernetes' API
// documentation of EnvVar: $(NAME) is NAME's value, $$ is $, and what is neither
// stays.
func expand(text string, vars map[string]string) string {
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		rest := text[i:]
		end := strings.IndexByte(rest, ')')
		switch {
		case strings.HasPrefix(rest, "$$"):
			b.WriteByte('$')
			i++
		case strings.HasPrefix(rest, "$(") && end > 0:
			value, ok := vars[rest[2:end]]
			if !ok {
				value = rest[:end+1]
			}
			b.WriteString(value)
			i += end
		default:
			b.WriteByte(rest[0])
		}
	}
	return b.String()
}

// What the kubelet makes of the pod's variables is what was configured, by Inject
// and by EnvVars.
func TestTheKubeletExpandsToTheSame(t *testing.T) {
	vars := map[string]string{"HOME": "WRONG", "KUBERNETES_SERVICE_HOST": "10.96.0.1"}
	for _, u := range append(urls, struct{ name, url, password string }{"dollars", "http://a$b$:$c$d$@proxy", "$c$d$"}) {
		c := config(u.url)
		spec := &corev1.PodSpec{Containers: []corev1.Container{{Name: "c"}}}
		if err := inject(spec, proxyconfig.Options{Config: c, Plain: true}); err != nil {
			t.Fatal(err)
		}
		for what, env := range map[string][]corev1.EnvVar{"Inject": spec.Containers[0].Env, "EnvVars": c.EnvVars()} {
			got := map[string]string{}
			for _, v := range env {
				got[v.Name] = expand(v.Value, vars)
			}
			if got["NO_PROXY"] = strings.TrimSuffix(got["NO_PROXY"], ",10.96.0.1"); got["HTTPS_PROXY"] != u.url || got["http_proxy"] != u.url || got["NO_PROXY"] != golden {
				t.Errorf("%s of %s: got %q", what, u.name, got)
			}
		}
	}
	if got := expand("$(HOME)$$(HOME)$$$x$(NONE)$(", vars); got != "WRONG$(HOME)$$x$(NONE)$(" {
		t.Errorf("got %q of what the documentation says about", got)
	}
}

// What a container says of a proxy of its own is all that it gets.
func TestInjectKeeps(t *testing.T) {
	proxies := []string{"HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "https_proxy"}
	all := append(slices.Clone(proxies), "NO_PROXY", "no_proxy")
	for _, tt := range []struct {
		name string
		env  []corev1.EnvVar
		from []corev1.EnvFromSource
		want []string
	}{
		{"nothing", nil, nil, all},
		{"others", own("A", "PROXY", "MY_HTTP_PROXY"), nil, all},
		{"HTTP_PROXY", own("A", "HTTP_PROXY"), nil, nil},
		{"http_proxy", own("http_proxy"), nil, nil},
		{"HTTPS_PROXY", own("HTTPS_PROXY"), nil, nil},
		{"https_proxy", own("https_proxy"), nil, nil},
		{"ALL_PROXY", own("ALL_PROXY"), nil, nil},
		{"all_proxy", own("all_proxy"), nil, nil},
		{"an empty one", []corev1.EnvVar{{Name: "HTTPS_PROXY"}}, nil, nil},
		{"NO_PROXY", own("NO_PROXY"), nil, proxies},
		{"no_proxy", own("no_proxy"), nil, proxies},
		{"envFrom", nil, []corev1.EnvFromSource{{ConfigMapRef: &corev1.ConfigMapEnvSource{}}}, all},
	} {
		t.Run(tt.name, func(t *testing.T) {
			i := newInjector(t, proxyconfig.Options{Config: openConfig})
			spec := &corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Env: slices.Clone(tt.env), EnvFrom: tt.from}}}
			changed := i.Inject(spec)
			got := spec.Containers[0].Env
			if !reflect.DeepEqual(got[:len(tt.env)], append([]corev1.EnvVar{}, tt.env...)) && len(tt.env) > 0 {
				t.Errorf("got %v, want the pod's own %v first", got, tt.env)
			}
			var names []string
			for _, v := range got[len(tt.env):] {
				names = append(names, v.Name)
			}
			if !slices.Equal(names, tt.want) || (len(changed) > 0) != (len(tt.want) > 0) {
				t.Errorf("got %q added and %q changed, want %q", names, changed, tt.want)
			}
			again := spec.DeepCopy()
			if second := i.Inject(again); len(second) > 0 || !reflect.DeepEqual(again, spec) {
				t.Errorf("got %q changed by a second Inject, want none", second)
			}
		})
	}
}

// All containers of a pod get it, each by itself, and nothing else changes.
func TestInjectContainers(t *testing.T) {
	backing := append(make([]corev1.EnvVar, 0, 20), own("A")...)
	spec := &corev1.PodSpec{
		NodeName:       "n",
		InitContainers: []corev1.Container{{Name: "i", Image: "x"}, {Name: "own", Env: own("https_proxy")}},
		Containers:     []corev1.Container{{Name: "c", Env: backing}, {Name: "d"}},
		EphemeralContainers: []corev1.EphemeralContainer{
			{EphemeralContainerCommon: corev1.EphemeralContainerCommon{Name: "e"}, TargetContainerName: "c"}},
	}
	i := newInjector(t, proxyconfig.Options{Config: secretConfig, Secret: "s"})
	vars := i.Missing(nil)
	want := spec.DeepCopy()
	want.InitContainers[0].Env = vars
	want.Containers[0].Env = append(own("A"), vars...)
	want.Containers[1].Env = vars
	want.EphemeralContainers[0].Env = vars
	got := i.Inject(spec)
	if names := []string{"i", "c", "d", "e"}; !slices.Equal(got, names) {
		t.Errorf("got %q changed, want %q", got, names)
	}
	if diff := cmp.Diff(want, spec); diff != "" {
		t.Errorf("want - got +:\n%s", diff)
	}
	if after := backing[:2][1]; after.Name != "" {
		t.Errorf("got %q in what the caller's slice has left, want nothing", after.Name)
	}
	spec.Containers[0].Env[3].ValueFrom = nil
	spec.Containers[1].Env[2].ValueFrom.SecretKeyRef.Name = "changed"
	if again := i.Missing(nil); short(again)[2] != "HTTPS_PROXY=(s/HTTPS_PROXY)" {
		t.Errorf("got %q after a pod was written to, want the Secret s", short(again)[2])
	}
}

func TestInjectRefuses(t *testing.T) {
	user := proxyconfig.Config{HTTPSProxy: "http://user:" + injectCanary + "@proxy:2"}
	for _, tt := range []struct {
		name, field string
		opts        proxyconfig.Options
	}{
		{"credentials and nowhere to put them", "Config.HTTPSProxy", proxyconfig.Options{Config: user}},
		{"a Secret and Plain", "Secret", proxyconfig.Options{Config: user, Secret: "s", Plain: true}},
		{"no name of a Secret", "Secret", proxyconfig.Options{Config: user, Secret: injectCanary + "/"}},
		{"a list that makes pods too large", "Config.NoProxy", proxyconfig.Options{Config: proxyconfig.Config{HTTPProxy: "http://p", NoProxy: strings.Repeat("a.test,", 2400)}}},
		{"no URL", "HTTPProxy", proxyconfig.Options{Config: proxyconfig.Config{HTTPProxy: injectCanary + "@proxy"}, Plain: true}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			spec := &corev1.PodSpec{Containers: []corev1.Container{{Name: "c"}}}
			err := inject(spec, tt.opts)
			var field *proxyconfig.FieldError
			if !errors.As(err, &field) || field.Field != tt.field || strings.Contains(err.Error(), injectCanary) {
				t.Errorf("got %v, want a FieldError of %s without a secret", err, tt.field)
			}
			if len(spec.Containers[0].Env) > 0 {
				t.Errorf("got %v in the pod, want nothing", spec.Containers[0].Env)
			}
		})
	}
}

// The password is in a pod where Plain asks for it, and nowhere else.
func TestInjectCanary(t *testing.T) {
	i := newInjector(t, proxyconfig.Options{Config: secretConfig, Secret: "s"})
	spec := &corev1.PodSpec{Containers: []corev1.Container{{Name: "c"}}}
	i.Inject(spec)
	for _, text := range []string{fmt.Sprintf("%#v", spec), fmt.Sprintf("%+v", i), spec.String()} {
		if strings.Contains(text, injectCanary) {
			t.Errorf("got the password in %s", text)
		}
	}
	plain := newInjector(t, proxyconfig.Options{Config: secretConfig, Plain: true})
	for _, text := range []string{fmt.Sprintf("%+v", plain), fmt.Sprintf("%#v", *plain), fmt.Sprint(proxyconfig.Options{Config: secretConfig})} {
		if strings.Contains(text, injectCanary) {
			t.Errorf("got the password in %s", text)
		}
	}
	spec.Containers[0].Env = nil
	if plain.Inject(spec); !strings.Contains(spec.String(), injectCanary) {
		t.Error("got no password with Plain, want it")
	}
}

// inject puts the variables into all containers of spec.
func inject(spec *corev1.PodSpec, opts proxyconfig.Options) error {
	i, err := proxyconfig.NewInjector(opts)
	if err == nil {
		i.Inject(spec)
	}
	return err
}
