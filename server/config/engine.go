package config

// ChosenEngine returns which engine reads requests, "net/http" or "fast", and why. There is nothing that it could not
// read: what is not plain it leaves to net/http.
func (c *Config) ChosenEngine() (engine, why string) {
	switch c.Engine {
	case "fast":
		return "fast", "plain requests of HTTP/1.1 cost less, and all others are for net/http"
	case "auto":
		return "net/http", "auto is net/http until the other engine was in use for longer"
	}
	return "net/http", "it is the default"
}
