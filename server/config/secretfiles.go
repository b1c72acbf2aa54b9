package config

// SecretFile is a file that nobody but the gateway may read.
type SecretFile struct{ Setting, Path string }

// SecretFiles lists the files with secrets that c, which is complete, names.
func (c *Config) SecretFiles() (all []SecretFile) {
	add := func(setting string, paths ...string) {
		for _, path := range paths {
			if path != "" {
				all = append(all, SecretFile{setting, path})
			}
		}
	}
	add("db_password_file", c.Database.PasswordFile)
	add("secret_file", c.SecretFile)
	add("admin_token_file", c.AdminTokenFile)
	add("decisions.resp_password_file", c.Decisions.RESPPasswordFile)
	add("decisions.tls.key_file", c.Decisions.TLS.KeyFile)
	add("tokens.secret_files", c.Tokens.SecretFiles...)
	add("store.password_file", c.Store.PasswordFile)
	add("store.tls.key_file", c.Store.TLS.KeyFile)
	add("store.secret_file", c.Store.SecretFile)
	add("gossip.secret_file", c.Gossip.SecretFile)
	add("tls.key_file", c.TLS.KeyFile)
	add("upstream_tls.key_file", c.Upstreams.TLS.KeyFile)
	add("warnings.secret_file", c.Warn.SecretFile)
	add("traces.headers_file", c.Traces.HeadersFile)
	return all
}
