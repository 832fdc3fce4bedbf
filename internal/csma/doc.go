// Package csma is the core of the CATS Service Metric Agent: it validates the reports of a site's service contact
// instances, caches them as soft state, and decides what each C-PS is told and when (C-SMA sections 4.2, 5, 7.3 and 9).
//
// It is deterministic: Core.Step takes what happened since the last call and gives back what to do. Values pass
// through as they were reported; there is no smoothing and no policy between the cache and the C-PS.
package csma
