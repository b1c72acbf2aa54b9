package metrics

// ReloadStatus is what became of reloads of the configuration.
type ReloadStatus struct {
	Good, Bad uint64
	OK        bool // the newest one succeeded
	Waiting   int  // settings that changed and wait for a restart
}

var (
	descReloads = describe("config_reloads_total", "Reloads of the configuration and its documents, by what "+
		"became of them: ok, or failed, which leaves what was in force.", "outcome")
	descReloadOK = describe("config_reload_ok",
		"1 if the newest reload of the configuration succeeded, 0 if what was in force before it stays.")
	descRestartOf = describe("config_restart_settings", "Settings that changed and wait for a restart.")
)

// reloadGauges tells of reloads; it has no series where nothing reloads.
type reloadGauges struct{ status func() ReloadStatus }

func (g *reloadGauges) write(out series) {
	if g.status == nil {
		return
	}
	s := g.status()
	out.count(descReloads, s.Good, "ok")
	out.count(descReloads, s.Bad, "failed")
	out.gauge(descReloadOK, truth(s.OK))
	out.gauge(descRestartOf, float64(s.Waiting))
}
