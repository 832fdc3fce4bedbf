package demo

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"time"

	api "github.com/margay-net/margay/api/margayv1alpha1"
	"github.com/margay-net/margay/internal/lab"
)

// patience bounds each wait; a slow machine takes a fraction of it.
const patience = 30 * time.Second

// margay runs a verb of this same program as the lab's operator.
func (s *stage) margay(args ...string) (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	command := exec.CommandContext(s.ctx, self, args...)
	command.Env = append(os.Environ(), "MARGAY_CONFIG="+s.lab.OperatorConfig())
	var complaint bytes.Buffer
	command.Stderr = &complaint
	answer, err := command.Output()
	if err != nil {
		return "", fmt.Errorf("margay %s: %w: %s", strings.Join(args, " "), err, strings.TrimSpace(complaint.String()))
	}
	return string(answer), nil
}

// waitUntilEligible waits until both instances are candidates: reported, with a path, and with their delivery rules in
// place.
func (s *stage) waitUntilEligible() error {
	deadline := time.Now().Add(patience)
	for {
		var decision *api.ExplainResponse
		err := s.domain.AskCPS(s.ctx, func(ctx context.Context, cps api.OperatorServiceClient) (err error) {
			decision, err = cps.Explain(ctx, &api.ExplainRequest{CsId: serviceID, Ingress: ingress})
			return err
		})
		ranked := 0
		for _, c := range decision.GetCandidates() {
			if c.GetRank() > 0 {
				ranked++
			}
		}
		if err == nil && ranked == 2 {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("instances A and B were not both eligible within %s: %v, %v", patience, err, decision)
		}
		select {
		case <-s.ctx.Done():
			return s.ctx.Err()
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// binding gives the example's row of the flow binding table once both forwarders have committed it.
func (s *stage) binding() (*api.BindingRow, error) {
	deadline := time.Now().Add(patience)
	for {
		var rows *api.ListBindingsResponse
		if err := s.domain.AskCPS(s.ctx, func(ctx context.Context, cps api.OperatorServiceClient) (err error) {
			rows, err = cps.ListBindings(ctx, &api.ListBindingsRequest{CsId: serviceID})
			return err
		}); err != nil {
			return nil, err
		}
		if len(rows.GetBindings()) == 1 && rows.GetBindings()[0].GetState() == api.FlowState_FLOW_STATE_ACTIVE {
			return rows.GetBindings()[0], nil
		}
		if time.Now().After(deadline) {
			return nil, fmt.Errorf("want one ACTIVE binding of %s, have %v", serviceID, rows)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// calls are how often the control plane was asked.
type calls struct {
	serviceRequests uint64 // by IF-1 to the C-PS
	pathRequests    uint64 // by the C-PS to its PCE
	held, released  uint64 // packets at IF-1
}

func (s *stage) counters() (calls, error) {
	var counters *api.GetCountersResponse
	if err := s.domain.AskForwarder(s.ctx, ingress, func(ctx context.Context, forwarder api.ForwarderServiceClient) (err error) {
		counters, err = forwarder.GetCounters(ctx, &api.GetCountersRequest{})
		return err
	}); err != nil {
		return calls{}, err
	}
	paths, err := s.lab.Metric(s.ctx, cpsName, "margay_cps_path_requests_total")
	if err != nil {
		return calls{}, err
	}
	return calls{
		serviceRequests: counters.GetServiceRequests(), pathRequests: uint64(paths),
		held: counters.GetHeld(), released: counters.GetReleased(),
	}, nil
}

const cpsName = "cps-1"

// exchange is one HTTP request and its answer.
type exchange struct {
	asked, answered time.Time
	greeting        lab.Greeting
}

// conversation is what the client did: two requests on one connection.
type conversation struct {
	first, second exchange
	between       calls // counters after the first
}

// converse opens the client's connection from the example's port and asks twice on it.
func (s *stage) converse() (*conversation, error) {
	node, err := s.lab.Node("client")
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(s.ctx, patience)
	defer cancel()
	var connection net.Conn
	err = node.Do(func() (err error) {
		dialer := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(clientEnd)}
		connection, err = dialer.DialContext(ctx, "tcp", service.String())
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("the client cannot reach %s: %w", service, err)
	}
	defer connection.Close()
	if err := connection.SetDeadline(time.Now().Add(patience)); err != nil {
		return nil, err
	}
	reader := bufio.NewReader(connection)
	var c conversation
	if c.first, err = ask(connection, reader, "/first"); err != nil {
		return nil, err
	}
	if c.between, err = s.counters(); err != nil {
		return nil, err
	}
	if c.second, err = ask(connection, reader, "/later"); err != nil {
		return nil, err
	}
	return &c, nil
}

func ask(connection net.Conn, reader *bufio.Reader, path string) (exchange, error) {
	request, err := http.NewRequest(http.MethodGet, "http://"+service.String()+path, nil)
	if err != nil {
		return exchange{}, err
	}
	e := exchange{asked: time.Now()}
	if err := request.Write(connection); err != nil {
		return e, err
	}
	response, err := http.ReadResponse(reader, request)
	if err != nil {
		return e, err
	}
	defer response.Body.Close()
	if err := json.NewDecoder(response.Body).Decode(&e.greeting); err != nil {
		return e, fmt.Errorf("GET %s: %s: %w", path, response.Status, err)
	}
	e.answered = time.Now()
	return e, nil
}
