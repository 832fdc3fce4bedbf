package csma

import (
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"testing"
)

// web is an HTTP server whose answer can be changed.
type web struct {
	server *httptest.Server
	status atomic.Int32
}

func newWeb(t *testing.T) *web {
	w := &web{}
	w.answer(200)
	w.server = httptest.NewServer(http.HandlerFunc(func(out http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/health" {
			out.WriteHeader(200) // where a redirect would lead
			return
		}
		out.Header().Set("Location", "/elsewhere")
		out.WriteHeader(int(w.status.Load()))
	}))
	t.Cleanup(w.server.Close)
	return w
}

func (w *web) url() string       { return w.server.URL }
func (w *web) answer(status int) { w.status.Store(int32(status)) }
