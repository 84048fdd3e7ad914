// A k6 load test whose requests begin traces that the server continues, and whose own spans say what k6 lost.
//
//   k6 run -e TARGET=http://127.0.0.1:8000/predict -e COLLECTOR=http://127.0.0.1:4318 traced.js
//
// Each request carries W3C `traceparent`. After each iteration its CLIENT span goes to the collector as OTLP over
// HTTP in JSON, outside of the measured time, with what k6 measured: blocked (waiting for a free connection),
// connecting, TLS handshaking, waiting, and how much later than planned the iteration began.

import http from 'k6/http';
import exec from 'k6/execution';

const TARGET = __ENV.TARGET || 'http://127.0.0.1:8000/predict';
const COLLECTOR = __ENV.COLLECTOR || 'http://127.0.0.1:4318';
const RATE = Number(__ENV.RATE || 20); // iterations a second

export const options = {
  scenarios: {
    steady: {
      executor: 'constant-arrival-rate', // an open model: a slow server does not slow the load down
      rate: RATE,
      timeUnit: '1s',
      duration: __ENV.DURATION || '30s',
      preAllocatedVUs: 20,
      maxVUs: 200,
    },
  },
};

export function hex(bytes) {
  let text = '';
  for (let i = 0; i < bytes; i++) {
    text += Math.floor(Math.random() * 256).toString(16).padStart(2, '0');
  }
  // W3C forbids an id of zeros only.
  return /^0+$/.test(text) ? hex(bytes) : text;
}

export function attribute(key, value) {
  if (typeof value === 'string') return { key, value: { stringValue: value } };
  if (Number.isInteger(value)) return { key, value: { intValue: String(value) } };
  return { key, value: { doubleValue: value } };
}

// `lateMs`: how much later than planned the iteration began, by the clock of k6.
export function spanOf(traceId, spanId, startMs, response, lateMs) {
  const timings = response.timings;
  const attributes = [
    attribute('http.request.method', 'POST'),
    attribute('url.full', TARGET),
    attribute('http.response.status_code', response.status),
    attribute('http.client.pool_wait_ms', timings.blocked),
    attribute('http.client.wait_ms', timings.waiting),
    attribute('loadgen.late_ms', Math.max(lateMs, 0)),
  ];
  const connectMs = timings.connecting + timings.tls_handshaking;
  if (connectMs > 0) attributes.push(attribute('http.client.connect_ms', connectMs));
  const failed = response.status === 0 || response.status >= 400;
  if (failed) attributes.push(attribute('error.type', response.error_code ? String(response.error_code) : String(response.status)));
  const endMs = startMs + timings.blocked + timings.connecting + timings.tls_handshaking + timings.duration;
  return {
    traceId,
    spanId,
    name: 'POST predict',
    kind: 3, // CLIENT
    startTimeUnixNano: nanoseconds(startMs),
    endTimeUnixNano: nanoseconds(endMs),
    attributes,
    status: failed ? { code: 2 } : {},
    flags: 0x103, // sampled, random id, and no remote parent
  };
}

export function nanoseconds(ms) {
  // A number cannot hold nanoseconds since 1970; milliseconds and a rest of six digits can be joined as text.
  const whole = Math.floor(ms);
  const rest = Math.floor((ms - whole) * 1e6);
  return `${whole}${String(rest).padStart(6, '0')}`;
}

export function exportOf(span) {
  return {
    resourceSpans: [
      {
        resource: { attributes: [attribute('service.name', 'k6')] },
        scopeSpans: [{ scope: { name: 'tailscope.k6' }, spans: [span] }],
      },
    ],
  };
}

export default function () {
  const traceId = hex(16);
  const spanId = hex(8);
  const plannedMs = exec.scenario.startTime + (exec.scenario.iterationInTest * 1000) / RATE;
  const startMs = Date.now();
  const response = http.post(TARGET, JSON.stringify({ row: 1 }), {
    headers: { 'Content-Type': 'application/json', traceparent: `00-${traceId}-${spanId}-03` },
    tags: { name: 'predict' },
  });
  const span = spanOf(traceId, spanId, startMs, response, startMs - plannedMs);
  http.post(`${COLLECTOR}/v1/traces`, JSON.stringify(exportOf(span)), {
    headers: { 'Content-Type': 'application/json' },
    tags: { name: 'export' }, // thresholds on `{name:predict}` leave it out
  });
}
