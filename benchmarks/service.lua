-- The load of benchmarks/service.py, for wrk: every request is different and has its own id.
-- Arguments: the prefix of the ids, and how many decisions a request asks for (0: one, without a batch).

local features, kept = 38, 200
local contexts, threads = {}, 0

function setup(thread)
  thread:set("thread", threads)
  threads = threads + 1
end

function init(arguments)
  math.randomseed(1)
  prefix, size, count = arguments[1] .. "-" .. thread .. "-", tonumber(arguments[2]), 0
  for i = 1, kept do
    local values = {}
    for j = 0, features - 1 do
      values[#values + 1] = string.format('"feature_%d":%.4f', j, math.random())
    end
    contexts[i] = '{"context":{' .. table.concat(values, ",") .. '},"id":"'
  end
  headers = { ["Content-Type"] = "application/json" }
end

local function one()
  count = count + 1
  return contexts[count % kept + 1] .. prefix .. count .. '"}'
end

function request()
  if size == 0 then
    return wrk.format("POST", nil, headers, one())
  end
  local asked = {}
  for i = 1, size do
    asked[i] = one()
  end
  return wrk.format("POST", nil, headers, '{"requests":[' .. table.concat(asked, ",") .. "]}")
end

function done(summary, latency, _)
  local errors = summary.errors
  io.write(string.format(
    '{"requests": %d, "seconds": %f, "p50": %f, "p99": %f, "worst": %f, "failed": %d}\n',
    summary.requests, summary.duration / 1e6,
    latency:percentile(50) / 1e3, latency:percentile(99) / 1e3, latency.max / 1e3,
    errors.connect + errors.read + errors.write + errors.status + errors.timeout
  ))
end
