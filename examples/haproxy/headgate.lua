-- Asks Headgate whether a request may pass, and answers it if not. When Headgate
-- does not answer in time, the client gets 503: nothing passes unlimited. To let
-- requests pass instead, return where it says so.
local address = "http://127.0.0.1:8083/forward" -- "listen headgate" in haproxy.cfg

core.register_action("headgate", { "http-req" }, function(txn)
  local headers = {}
  for name, values in pairs(txn.http:req_get_headers()) do
    local list = {}
    for i = 0, #values do
      list[#list + 1] = values[i] -- they begin at 0
    end
    headers[name] = list
  end
  -- The body stays here, and so does what frames it.
  for _, name in ipairs({ "content-length", "transfer-encoding", "connection", "expect", "host" }) do
    headers[name] = nil
  end
  headers["x-forwarded-method"] = { txn.f:method() }
  headers["x-forwarded-uri"] = { txn.f:pathq() }
  local chain = headers["x-forwarded-for"] or {}
  chain[#chain + 1] = tostring(txn.f:src())
  headers["x-forwarded-for"] = { table.concat(chain, ", ") }

  local answer = core.httpclient():get({ url = address, headers = headers })
  local reply = txn:reply()
  if not answer or not answer.status or answer.status == 0 or answer.status >= 500 and not answer.headers["retry-after"] then
    -- return, and the request passes
    reply:set_status(503)
    txn:done(reply)
    return
  end
  local function first(name)
    local values = answer.headers[name]
    return values and (values[0] or values[1])
  end
  if answer.status == 200 then
    if first("ratelimit") then
      txn:set_var("txn.headgate_ratelimit", first("ratelimit"))
      txn:set_var("txn.headgate_policy", first("ratelimit-policy"))
    end
    return
  end
  reply:set_status(answer.status)
  for _, name in ipairs({ "content-type", "retry-after", "ratelimit", "ratelimit-policy", "allow", "cache-control", "www-authenticate" }) do
    if first(name) then
      reply:add_header(name, first(name))
    end
  end
  reply:set_body(answer.body)
  txn:done(reply)
end)
