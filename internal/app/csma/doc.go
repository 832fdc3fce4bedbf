// Package csma is the margay-csma daemon: it collects the reports of a site's service contact instances over gRPC, runs
// the core of package internal/csma on them, and tells its C-PSes what comes out.
package csma
