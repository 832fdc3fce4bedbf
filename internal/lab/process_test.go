package lab

import "testing"

func TestUnmet(t *testing.T) {
	for answer, want := range map[string]string{
		"ok start\nnot ready cps: no session; it is away\nok x: y\nnot ready health: unknown\n": "cps: no session; it is away; health: unknown",
		"ok start\n":      "ok start",
		"bad\ngateway \n": "bad; gateway",
		"":                "",
	} {
		if got := unmet(answer); got != want {
			t.Errorf("%q: %q, want %q", answer, got, want)
		}
	}
}
