package sci

import (
	"context"
	"fmt"
	"net"
	"net/http"
)

// client makes each HTTP check on a connection of its own, follows no redirect, and uses no proxy: a check is of this
// instance and nothing else.
var client = http.Client{
	Transport:     &http.Transport{DisableKeepAlives: true, MaxResponseHeaderBytes: 64 << 10},
	CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
}

// run makes one check, which is failed if it takes as long as the interval; the error says what was wrong.
func (c *Check) run(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, c.Interval)
	defer cancel()
	if c.HTTP != "" {
		return c.get(ctx)
	}
	network, address := c.TCP.Network()
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, network, address)
	if err != nil {
		return err
	}
	return conn.Close()
}

func (c *Check) get(ctx context.Context) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, c.HTTP, nil)
	if err != nil {
		return err
	}
	request.Header.Set("User-Agent", "margay-sci")
	response, err := client.Do(request)
	if err != nil {
		return err
	}
	if response.StatusCode/100 != 2 {
		err = fmt.Errorf("GET %s answered %s", c.HTTP, response.Status)
	}
	if closing := response.Body.Close(); err == nil {
		err = closing
	}
	return err
}
