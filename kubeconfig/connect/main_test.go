package connect_test

import (
	"encoding/json"
	"fmt"
	"os"
	"testing"

	"go.uber.org/goleak"
	"k8s.io/client-go/rest"

	"github.com/causewayproject/causeway/internal/test/kubetest"
)

// pluginVariable makes the test binary an exec credential plugin.
const pluginVariable = "CAUSEWAY_TEST_EXEC_PLUGIN"

func TestMain(m *testing.M) {
	if os.Getenv(pluginVariable) != "" {
		execPlugin()
		return
	}
	kubetest.SetDeadEnvironment()
	// A plugin that has new tokens to save, as those of OIDC do.
	err := rest.RegisterAuthProviderPlugin("test", func(_ string, _ map[string]string, p rest.AuthProviderConfigPersister) (rest.AuthProvider, error) {
		return provider{}, p.Persist(map[string]string{"token": "new"})
	})
	if err != nil {
		panic(err)
	}
	// client-go's, of connections that were cut: for 1, 5 and 30 seconds.
	goleak.VerifyTestMain(m,
		goleak.IgnoreAnyFunction("github.com/moby/spdystream.(*Connection).shutdown"),
		goleak.IgnoreAnyFunction("k8s.io/client-go/tools/remotecommand.(*heartbeat).start"),
		goleak.IgnoreAnyFunction("github.com/moby/spdystream.(*Stream).WaitTimeout"))
}

// execPlugin prints a token that says which proxy it was told of.
func execPlugin() {
	var info struct {
		Spec struct {
			Cluster struct {
				ProxyURL string `json:"proxy-url"`
			} `json:"cluster"`
		} `json:"spec"`
	}
	if err := json.Unmarshal([]byte(os.Getenv("KUBERNETES_EXEC_INFO")), &info); err != nil {
		panic(err)
	}
	token := "proxy=" + info.Spec.Cluster.ProxyURL
	fmt.Printf(`{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":%q}}`, token)
}
