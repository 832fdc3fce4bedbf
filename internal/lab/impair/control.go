package impair

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"

	"github.com/margay-net/margay/internal/trust/endpoint"
)

// Change is what Apply changes.
type Change struct {
	Directions []Direction `json:"directions"`
	To         *Impairment `json:"to"` // nil: none any more
}

// Apply makes a change at the Process that listens at an address, and gives what holds then.
func Apply(ctx context.Context, at endpoint.Address, c Change) (State, error) {
	body, err := json.Marshal(c)
	if err != nil {
		return State{}, err
	}
	return call(ctx, at, http.MethodPost, body)
}

// Ask gives what holds at the Process that listens at an address.
func Ask(ctx context.Context, at endpoint.Address) (State, error) {
	return call(ctx, at, http.MethodGet, nil)
}

func call(ctx context.Context, at endpoint.Address, method string, body []byte) (s State, err error) {
	ctx, cancel := context.WithTimeout(ctx, controlTime)
	defer cancel()
	network, address := at.Network()
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true, DialContext: dialer(network, address)}}
	request, err := http.NewRequestWithContext(ctx, method, "http://impair/", bytes.NewReader(body))
	if err != nil {
		return State{}, err
	}
	response, err := client.Do(request)
	if err != nil {
		return State{}, fmt.Errorf("impair: %w", err)
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(response.Body)
	if err != nil {
		return State{}, fmt.Errorf("impair: %w", err)
	}
	if response.StatusCode != http.StatusOK {
		return State{}, errors.New("impair: " + strings.TrimSpace(string(answer)))
	}
	if err := json.Unmarshal(answer, &s); err != nil {
		return State{}, fmt.Errorf("impair: %w", err)
	}
	return s, nil
}

// dialer dials one place, whatever a URL says.
func dialer(network, address string) func(context.Context, string, string) (net.Conn, error) {
	return func(ctx context.Context, _, _ string) (net.Conn, error) {
		var d net.Dialer
		return d.DialContext(ctx, network, address)
	}
}
