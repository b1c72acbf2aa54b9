-- Asks Headgate whether a request may pass, from nginx with Lua: OpenResty, Debian's libnginx-mod-http-lua, and plugins of
-- Kong and APISIX. It needs lua-cjson, which OpenResty brings along. See docs/decisions.md.
local cjson = require("cjson.safe")

local headgate = {}

-- What is known of each service, by worker: failures in a row, and when it is asked again.
local state = {}

local function breaker(key)
  local s = state[key]
  if not s then
    s = { failures = 0, again = 0 }
    state[key] = s
  end
  return s
end

local function failed(s, text)
  s.failures = s.failures + 1
  s.again = ngx.now() + 1
  return nil, text
end

-- Reads an answer: its status and its body, or nothing and what is wrong.
local function read(sock)
  local line, err = sock:receive("*l")
  if not line then return nil, err end
  local status = tonumber(line:match("^HTTP/1%.1 (%d%d%d)"))
  if not status then return nil, "no HTTP" end
  local length, close
  while true do
    line, err = sock:receive("*l")
    if not line then return nil, err end
    if line == "" then break end
    local name, value = line:match("^([^:]+):%s*(.-)%s*$")
    name = name and name:lower()
    if name == "content-length" then length = tonumber(value) end
    if name == "connection" then close = value:lower() == "close" end
  end
  if not length or length > 2097152 then return nil, "an answer without a length, or too long" end
  local body = ""
  if length > 0 then
    body, err = sock:receive(length)
    if not body then return nil, err end
  end
  return status, body, not close
end

local function once(options, text)
  local sock = ngx.socket.tcp()
  sock:settimeout(options.timeout or 250)
  local ok, err = sock:connect(options.host or "127.0.0.1", options.port or 8082)
  if not ok then return nil, err end
  local reused = (sock:getreusedtimes() or 0) > 0
  local status, body, keep
  ok, err = sock:send({ "POST /v1/check HTTP/1.1\r\nHost: headgate\r\nContent-Type: application/json\r\nContent-Length: ", tostring(#text), "\r\n\r\n", text })
  if ok then status, body, keep = read(sock) end
  if not status then
    sock:close()
    return nil, body or err, reused
  end
  if keep then sock:setkeepalive(60000, 64) else sock:close() end
  return status, body
end

-- ask(options, question) returns the decision about a question (docs/decisions.md, "From a program, in JSON"), or nil and
-- why there is none.
function headgate.ask(options, question)
  local s = breaker((options.host or "127.0.0.1") .. ":" .. (options.port or 8082))
  if s.failures >= 3 then
    if ngx.now() < s.again then return nil, "Headgate has failed three times in a row, and is asked once a second" end
    s.again = ngx.now() + 1
  end
  local text, err = cjson.encode(question)
  if not text then return nil, err end
  local status, body, reused = once(options, text)
  if not status and reused then status, body = once(options, text) end -- a connection that was closed while it was idle
  if not status then return failed(s, "Headgate did not answer: " .. tostring(body)) end
  local answer = cjson.decode(body)
  if type(answer) ~= "table" or status >= 500 then return failed(s, "Headgate answered " .. status) end
  s.failures = 0 -- a question that is refused says nothing against the service
  if status ~= 200 then return nil, "Headgate answered " .. status .. ": " .. tostring(answer.detail) end
  return answer
end

-- The lines of all fields but cookies.
local function fields()
  local found = {}
  for name, value in pairs(ngx.req.get_headers(0)) do
    if name ~= "cookie" then
      if type(value) ~= "table" then value = { value } end
      for i = 1, #value do value[i] = tostring(value[i]) end
      found[name] = value
    end
  end
  if next(found) == nil then return nil end
  return found
end

-- access(options) is for access_by_lua: it lets the request go on, or answers it. Options:
--
--   host, port   where Headgate listens (decisions.listen); default 127.0.0.1 and 8082
--   timeout      milliseconds for each of connecting, sending and waiting; default 250
--   user         a function that returns the id, and perhaps the project, of who is logged in; default nobody
--   cost         a function that returns what the request costs, in tokens
--   fallback     what happens to requests while Headgate cannot be asked: "deny" (503, the default) or "allow"
function headgate.access(options)
  options = options or {}
  local question = {
    method = ngx.req.get_method(),
    target = ngx.var.request_uri, -- as it stood in the request line
    client = ngx.var.remote_addr,
    header = fields(),
    cost = options.cost and options.cost() or nil,
  }
  if question.client == "unix:" then question.client = "127.0.0.1" end
  if options.user then
    local id, project = options.user()
    if id and id ~= "" then question.user = { id = tostring(id), project = project } end
  end
  local decided, err = headgate.ask(options, question)
  if not decided then
    local s = breaker("log")
    if ngx.now() >= s.again then -- an outage is no reason to fill a disk
      s.again = ngx.now() + 1
      ngx.log(ngx.WARN, err)
    end
    if options.fallback == "allow" then return end
    decided = {
      allowed = false, status = 503, header = { ["Retry-After"] = "5", ["Content-Type"] = "application/problem+json", ["Cache-Control"] = "no-store" },
      problem = { type = "about:blank", title = "Limits unavailable", status = 503, detail = "The limits cannot be checked at the moment." },
    }
  end
  for name, value in pairs(decided.header or {}) do ngx.header[name] = value end
  if decided.allowed == true then return end
  ngx.status = decided.status
  if ngx.req.get_method() ~= "HEAD" then ngx.print(decided.body or cjson.encode(decided.problem or {})) end
  return ngx.exit(ngx.HTTP_OK) -- with the status that was set
end

return headgate
