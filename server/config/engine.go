package config

// ChosenEngine returns which engine reads requests, "net/http" or "fast", and why. There is nothing that fast could not
// read: what is not plain it leaves to net/http.
func (c *Config) ChosenEngine() (engine, why string) {
	if c.Engine == "net/http" {
		return "net/http", "it is set, and a request costs about twice what it does with fast"
	}
	return "fast", "plain requests of HTTP/1.1 cost less, and all others are for net/http"
}
