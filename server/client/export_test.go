package client

// ReadAtMost has a Client read so many bytes of an answer.
func (c *Client) ReadAtMost(bytes int64) { c.most = bytes }
