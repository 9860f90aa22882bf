package e2e

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/chromedp"

	"github.com/causewayproject/causeway/internal/e2e/bed"
)

// A browser is a headless Chromium with one tab.
type browser struct {
	t   *testing.T
	ctx context.Context

	mu   sync.Mutex // guards the field below
	said []string   // errors and warnings of the console
}

// newBrowser starts a browser until the test ends. What its console complains
// of fails the test, unless the test takes it with complaints.
func newBrowser(t *testing.T) *browser {
	t.Helper()
	home := t.TempDir()
	options := append(slices.Clone(chromedp.DefaultExecAllocatorOptions[:]), chromedp.NoSandbox, // it runs as root
		chromedp.ExecPath("chromium"), chromedp.UserDataDir(filepath.Join(home, "profile")), chromedp.Env("HOME="+home))
	allocator, end := chromedp.NewExecAllocator(context.Background(), options...)
	ctx, cancel := chromedp.NewContext(allocator)
	b := &browser{t: t, ctx: ctx}
	var listening sync.WaitGroup
	t.Cleanup(func() {
		if t.Failed() {
			b.shoot("failed.png")
		}
		if err := chromedp.Cancel(ctx); err != nil {
			t.Errorf("close the browser: %v", err)
		}
		cancel()
		end()
		listening.Wait()
		for _, text := range b.complaints() {
			t.Errorf("the console says: %s", text)
		}
	})
	if err := chromedp.Do(ctx); err != nil { // not bounded: the browser ends with this ctx
		t.Fatalf("start the browser: %v", err)
	}
	messages := chromedp.Console(ctx)
	listening.Go(func() {
		for m, err := range messages {
			if err != nil {
				return
			}
			b.hear(m)
		}
	})
	return b
}

func (b *browser) hear(m chromedp.ConsoleMessage) {
	if !m.IsException() && m.Type != chromedp.ConsoleError && m.Type != chromedp.ConsoleWarning {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.said = append(b.said, m.String()+" "+m.URL)
}

// complaints returns what the console said since the last call.
func (b *browser) complaints() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	said := b.said
	b.said = nil
	return said
}

// act runs an action of the browser. It is bounded, as all that waits.
func act[T any](b *browser, what string, action chromedp.Action[T]) T {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, time.Minute)
	defer cancel()
	v, err := chromedp.Run(ctx, action)
	if err != nil {
		b.t.Fatalf("%s: %v", what, err)
	}
	return v
}

func (b *browser) open(url string) {
	b.t.Helper()
	act(b, "open "+url, chromedp.Navigate(url))
}

// until waits for a JavaScript expression to be true, here or on the page that
// the browser goes to.
func (b *browser) until(expression string) {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, time.Minute)
	defer cancel()
	err := bed.Poll(ctx, expression, func(ctx context.Context) error {
		is, err := chromedp.Run(ctx, chromedp.Evaluate[bool](expression))
		if err == nil && !is {
			err = errors.New("it is false")
		}
		return err
	})
	if err != nil {
		b.t.Fatal(err)
	}
}

// value returns what a JavaScript expression is.
func value[T any](b *browser, expression string) T {
	b.t.Helper()
	return act(b, expression, chromedp.Evaluate[T](expression))
}

// do runs JavaScript.
func (b *browser) do(script string) {
	b.t.Helper()
	act(b, script, chromedp.Evaluate[chromedp.Void](script+"; undefined"))
}

// write types into what a selector finds.
func (b *browser) write(selector, text string) {
	b.t.Helper()
	act(b, "write to "+selector, chromedp.SendKeys(selector, text))
}

// press presses keys, wherever the focus is.
func (b *browser) press(keys string) {
	b.t.Helper()
	act(b, "press "+keys, chromedp.KeyEvent(keys))
}

// script says whether pages may run any. What a test evaluates runs all the same.
func (b *browser) script(may bool) {
	b.t.Helper()
	_, err := chromedp.Call(b.ctx, emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: !may})
	if err != nil {
		b.t.Fatal(err)
	}
}

// view is a size and a colour scheme.
type view struct {
	name          string
	width, height int64
	scheme        string
}

func (b *browser) look(v view) {
	b.t.Helper()
	act(b, v.name, chromedp.EmulateViewport(v.width, v.height))
	act(b, v.scheme, func(ctx context.Context, t *chromedp.Target) (chromedp.Void, error) {
		_, err := chromedp.Call(ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{
			Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: v.scheme}}})
		return chromedp.Void{}, err
	})
}

// shoot writes what is seen to a file in CAUSEWAY_E2E_SHOTS, if that is set.
func (b *browser) shoot(name string) {
	b.t.Helper()
	dir := os.Getenv("CAUSEWAY_E2E_SHOTS")
	if dir == "" {
		return
	}
	png, err := chromedp.Run(b.ctx, chromedp.CaptureScreenshot())
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, name), png, 0o644)
	}
	if err != nil {
		b.t.Errorf("screenshot %s: %v", name, err)
	}
}
