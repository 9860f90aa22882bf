package kubernetes_test

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	"k8s.io/client-go/rest"

	"github.com/causewayproject/causeway/tunnel/gateway"
	"github.com/causewayproject/causeway/tunnel/kubernetes"
)

// What a token says of itself decides whether the API server is asked.
func TestTokenShape(t *testing.T) {
	encode := base64.RawURLEncoding.EncodeToString
	ends := time.Now().Add(time.Hour).Unix()
	good := jwt(fmt.Sprintf(`{"aud":["x","tunnel"],"exp":%d}`, ends))
	parts := strings.Split(good, ".")
	for _, tt := range []struct {
		name, token string
		asked       bool
	}{
		{"one of several audiences", good, true},
		{"its only audience", jwt(fmt.Sprintf(`{"aud":"tunnel","exp":%d}`, ends)), true},
		{"the end is a fraction", jwt(fmt.Sprintf(`{"aud":"tunnel","exp":%d.5}`, ends)), true},
		{"the other clock is behind", jwt(fmt.Sprintf(`{"aud":"tunnel","exp":%d}`, ends-3600-240)), true},
		{"over", jwt(fmt.Sprintf(`{"aud":"tunnel","exp":%d}`, ends-3600-360)), false},
		{"no end", jwt(`{"aud":"tunnel"}`), false},
		{"an end that is a text", jwt(`{"aud":"tunnel","exp":"4102444800"}`), false},
		{"an end for ever", jwt(`{"aud":"tunnel","exp":1e300}`), false},
		{"other audiences", jwt(fmt.Sprintf(`{"aud":["tunnel2","unnel"],"exp":%d}`, ends)), false},
		{"no audience, as of a Secret", jwt(`{"iss":"kubernetes/serviceaccount","sub":"system:serviceaccount:a:b"}`), false},
		{"audiences of another kind", jwt(fmt.Sprintf(`{"aud":{"tunnel":1},"exp":%d}`, ends)), false},
		{"claims that are no object", jwt(`"tunnel"`), false},
		{"claims that are nothing", jwt(`null`), false},
		{"two parts", parts[0] + "." + parts[1], false},
		{"four parts", good + ".AAAA", false},
		{"an encrypted one", good + ".AAAA.AAAA", false},
		{"no header", "." + parts[1] + "." + parts[2], false},
		{"a header without an algorithm", "e30." + parts[1] + "." + parts[2], false},
		{"the algorithm none", encode([]byte(`{"alg":"none"}`)) + "." + parts[1] + "." + parts[2], false},
		{"no signature", parts[0] + "." + parts[1] + ".", false},
		{"a short signature", parts[0] + "." + parts[1] + "." + encode(make([]byte, 63)), false},
		{"a long signature", parts[0] + "." + parts[1] + "." + encode(make([]byte, 1025)), false},
		{"not base64url", parts[0] + "." + parts[1] + "." + strings.Replace(parts[2], "-", "+", 1), false},
		{"padded", parts[0] + "." + parts[1] + "." + encode(make([]byte, 64)) + "==", false},
		{"too long", jwt(fmt.Sprintf(`{"aud":"tunnel","exp":%d,"x":"%s"}`, ends, strings.Repeat("x", 32<<10))), false},
	} {
		r := newReviewer()
		_, err := r.Authenticate(t.Context(), gateway.Credentials{User: "default/prod", Password: tt.token})
		want := "unknown"
		if tt.asked && strings.Contains(tt.token, goodSignature) {
			want = "let in"
		}
		if got := outcome(err); got != want || (r.tokens == 1) != tt.asked {
			t.Errorf("%s: got %s (%v) after %d questions, want %s, a question %v", tt.name, got, err, r.tokens, want, tt.asked)
		}
	}
}

func FuzzTokenClaims(f *testing.F) {
	f.Add(goodToken)
	f.Add(jwt(`{"aud":["a","tunnel"],"exp":1e9}`))
	f.Add("a.b.c")
	f.Fuzz(func(t *testing.T, token string) {
		asked, audiences, ends := kubernetes.ParseJWT(token)
		if !asked {
			return
		}
		parts := strings.Split(token, ".")
		if len(parts) != 3 || len(parts[2]) < 86 || ends.Year() > 9999 {
			t.Errorf("%q is a token for %q until %v", token, audiences, ends)
		}
	})
}

// heldAPI is an API server that answers a question when the test says so. It is a
// transport, so that tests can have their own clock.
type heldAPI struct {
	t *testing.T

	mu    sync.Mutex // guards the fields below
	asked []string   // users of the tokens, or clusters, in the order of the questions
	held  map[string]chan bool
}

// held returns a TokenReview of a heldAPI.
func held(t *testing.T) (*heldAPI, *kubernetes.TokenReview) {
	t.Helper()
	api := &heldAPI{t: t, held: map[string]chan bool{}}
	client := newClients(t, &rest.Config{Host: "http://api.invalid", Transport: api, QPS: -1,
		ContentConfig: rest.ContentConfig{ContentType: "application/json"}})
	r := &kubernetes.TokenReview{Client: client, Audiences: []string{"tunnel"}, Opaque: true, Remember: -1}
	r.SetAllow(func(context.Context, authenticationv1.UserInfo, string) error { return nil })
	return api, r
}

func (a *heldAPI) RoundTrip(r *http.Request) (*http.Response, error) {
	var review authenticationv1.TokenReview
	if err := json.NewDecoder(r.Body).Decode(&review); err != nil {
		return nil, err
	}
	yes, err := a.ask(r.Context(), review.Spec.Token)
	if err != nil {
		return nil, err
	}
	if yes {
		review.Status = authenticationv1.TokenReviewStatus{Authenticated: true, Audiences: []string{"tunnel"},
			User: authenticationv1.UserInfo{Username: review.Spec.Token}}
	}
	body, err := json.Marshal(review)
	return &http.Response{StatusCode: http.StatusCreated, Header: http.Header{"Content-Type": {"application/json"}},
		Body: io.NopCloser(bytes.NewReader(body)), Request: r}, err
}

func (a *heldAPI) ask(ctx context.Context, what string) (bool, error) {
	a.mu.Lock()
	a.asked = append(a.asked, what)
	answer := make(chan bool)
	a.held[what] = answer
	a.mu.Unlock()
	select {
	case yes := <-answer:
		return yes, nil
	case <-ctx.Done():
		return false, ctx.Err()
	}
}

// answer answers the question about a token, or a cluster, and waits for what comes
// of it.
func (a *heldAPI) answer(what string, yes bool) {
	a.t.Helper()
	a.mu.Lock()
	c := a.held[what]
	a.mu.Unlock()
	if c == nil {
		a.t.Fatalf("nobody has asked about %s", what)
	}
	c <- yes
	synctest.Wait()
}

// want checks the questions so far.
func (a *heldAPI) want(what ...string) {
	a.t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	if !slices.Equal(a.asked, what) {
		a.t.Errorf("got questions about %q, want %q", a.asked, what)
	}
}

// show starts to authenticate and waits until it stands still. The outcome comes
// through the channel.
func show(ctx context.Context, r *kubernetes.TokenReview, remote, token, cluster string) <-chan string {
	got := make(chan string, 1)
	c := gateway.Credentials{User: cluster, Password: token, Remote: net.TCPAddrFromAddrPort(netip.MustParseAddrPort(remote))}
	go func() {
		_, err := r.Authenticate(ctx, c)
		got <- outcome(err)
	}()
	synctest.Wait()
	return got
}

// now is the outcome that has come.
func now(got <-chan string) string {
	select {
	case s := <-got:
		return s
	default:
		return "nothing yet"
	}
}

const prod = "default/prod"

func wantNow(t *testing.T, name string, got <-chan string, want string) {
	t.Helper()
	if got := now(got); got != want {
		t.Errorf("%s: got %s, want %s", name, got, want)
	}
}

// Equal questions at the same time are one, whoever asks. If who asked first leaves,
// another asks.
func TestReviewsJoin(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api, r := held(t)
		ctx, leave := context.WithCancel(t.Context())
		first := show(ctx, r, "192.0.2.1:1", "annie", prod)
		var others []<-chan string
		for n := range 300 {
			others = append(others, show(t.Context(), r, fmt.Sprintf("192.0.2.1:%d", 1+n%3), "annie", prod))
		}
		api.want("annie")
		leave()
		synctest.Wait()
		wantNow(t, "who left", first, "unavailable")
		api.want("annie", "annie")
		api.answer("annie", true)
		for _, got := range others {
			wantNow(t, "one of the others", got, "let in")
		}
		api.want("annie", "annie")
	})
}

// A no counts for five seconds, and what was not answered for none.
func TestReviewsRememberNo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api, r := held(t)
		again := func() <-chan string { return show(t.Context(), r, "192.0.2.1:1", "bob", prod) }
		ctx, leave := context.WithCancel(t.Context())
		got := show(ctx, r, "192.0.2.1:1", "bob", prod)
		leave()
		synctest.Wait()
		wantNow(t, "without an answer", got, "unavailable")
		got = again()
		api.want("bob", "bob")
		api.answer("bob", false)
		wantNow(t, "a no", got, "unknown")
		time.Sleep(5*time.Second - 1)
		wantNow(t, "remembered", again(), "unknown")
		api.want("bob", "bob")
		time.Sleep(time.Nanosecond)
		got = again()
		api.want("bob", "bob", "bob")
		api.answer("bob", true)
		wantNow(t, "a yes at last", got, "let in")
	})
}

// A source, and a connection, have a few questions at once; others and those who were
// let in before don't wait for them.
func TestReviewsTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api, r := held(t)
		for range 2 { // the second time it is known
			got := show(t.Context(), r, "[2001:db8::1]:1", "annie", prod)
			api.answer("annie", true)
			wantNow(t, "annie", got, "let in")
		}
		strangers := map[string]<-chan string{}
		for n := range 4 + 256 { // of one network
			token := fmt.Sprintf("stranger%03d", n)
			strangers[token] = show(t.Context(), r, fmt.Sprintf("[2001:db8::%x]:1", 1+n), token, prod)
		}
		asked := []string{"annie", "annie", "stranger000", "stranger001", "stranger002", "stranger003"}
		api.want(asked...)
		wantNow(t, "one more", show(t.Context(), r, "[2001:db8::ffff:1]:1", "one more", prod), "unavailable")
		wantNow(t, "one that waits", strangers["stranger004"], "nothing yet")
		api.want(asked...)

		got := show(t.Context(), r, "[2001:db8::1]:2", "annie", prod)
		api.answer("annie", true)
		wantNow(t, "one who was let in before", got, "let in")

		got = show(t.Context(), r, "[2001:db8:0:1::1]:1", "carol", prod)
		api.answer("stranger000", false)
		api.answer("stranger001", false)
		asked = append(asked, "annie", "stranger004", "carol")
		api.want(asked...)
		api.answer("carol", true)
		wantNow(t, "one of another network", got, "let in")
		wantNow(t, "a stranger", strangers["stranger000"], "unknown")
	})
}

func TestReviewsOfConnection(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, r := held(t)
		for n := range 16 {
			show(t.Context(), r, "192.0.2.1:1", fmt.Sprint("stranger", n), prod)
		}
		wantNow(t, "one more", show(t.Context(), r, "192.0.2.1:1", "one more", prod), "unavailable")
		wantNow(t, "one that is asked about", show(t.Context(), r, "192.0.2.1:1", "stranger15", prod), "nothing yet")
		wantNow(t, "another connection", show(t.Context(), r, "192.0.2.1:2", "one more", prod), "nothing yet")
	})
}

// A user who asks for many clusters waits for themselves only, and is refused without
// a question for a while.
func TestReviewsOfRights(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		api, r := held(t)
		r.Remember = time.Hour
		r.SetAllow(func(ctx context.Context, user authenticationv1.UserInfo, cluster string) error {
			switch yes, err := api.ask(ctx, cluster); {
			case err != nil:
				return err
			case !yes:
				return errors.New("it has no right")
			}
			return nil
		})
		for _, user := range []string{"bob", "annie"} {
			got := show(t.Context(), r, "192.0.2.1:1", user, user+"'s")
			api.answer(user, true)
			api.answer(user+"'s", true)
			wantNow(t, user, got, "let in")
		}
		var bob []<-chan string
		for n := range 4 + 256 {
			bob = append(bob, show(t.Context(), r, "192.0.2.1:1", "bob", fmt.Sprintf("c%03d", n)))
		}
		wantNow(t, "one more", show(t.Context(), r, "192.0.2.1:1", "bob", "one more"), "unavailable")
		annie := show(t.Context(), r, "192.0.2.1:1", "annie", "hers too")
		joined := show(t.Context(), r, "192.0.2.1:1", "annie", "hers too")
		api.answer("c000", false)
		api.answer("c001", false)
		api.answer("hers too", true)
		wantNow(t, "another user", annie, "let in")
		wantNow(t, "another user once more", joined, "let in")
		wantNow(t, "without a right", bob[0], "forbidden")
		asked := []string{"bob", "bob's", "annie", "annie's", "c000", "c001", "c002", "c003", "c004", "hers too", "c005"}
		api.want(asked...)
		time.Sleep(5*time.Second - 1)
		wantNow(t, "remembered", show(t.Context(), r, "192.0.2.1:1", "bob", "c000"), "forbidden")
		api.want(asked...)
	})
}
