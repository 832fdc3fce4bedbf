// Package cps is the composition root of margay-cps, the C-PS: it joins the core with the channels of forwarders,
// C-SMAs, C-NMAs and operators, with the embedded PCE, and with the store of its epoch. One goroutine owns the core; what
// others have for it waits in one bounded queue.
package cps
