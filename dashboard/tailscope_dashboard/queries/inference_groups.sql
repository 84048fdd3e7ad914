-- One row for all of the selected requests, one per line_us and one per fine_us of time, one per model and version, one
-- for cold ones and one for the others (`grouped` says which): what they say of tokens, batches and cold starts.
-- Counts are of those that say it; a request counts as many times as its sample_weight says; ..._effective: so many
-- unsampled ones would tell as much. One pass, because a pass over a million requests takes as long as its quantiles.
-- Parameters: the selection, since, line_us, fine_us, p50, p99, and quantiles of ttft_ms and tpot_ms.
with told as (
    select
        *,
        time_bucket(to_microseconds($line_us), start_time, $since) as line,
        time_bucket(to_microseconds($fine_us), start_time, $since) as fine,
        coalesce(cold_start, false) as cold
    from requests
    where $selection
)

select
    case
        when grouping(line) = 0 then 'line'
        when grouping(fine) = 0 then 'fine'
        when grouping(model) = 0 then 'version'
        when grouping(cold) = 0 then 'cold'
        else 'all'
    end as grouped,
    coalesce(line, fine) as start_time,
    model,
    version,
    cold,
    count_w(sample_weight) as requests,
    effective_w(sample_weight) as effective,
    count_w(case when status = 'error' then sample_weight end) as errors,
    min(start_time) as first_start,
    max(start_time) as last_start,
    $p50 as p50_ms,
    $p99 as p99_ms,
    count_w(case when ttft_ms is not null then sample_weight end) as ttft_requests,
    effective_w(case when ttft_ms is not null then sample_weight end) as ttft_effective,
    $ttft_p50 as ttft_p50_ms,
    $ttft_p99 as ttft_p99_ms,
    count_w(case when tpot_ms is not null then sample_weight end) as tpot_requests,
    effective_w(case when tpot_ms is not null then sample_weight end) as tpot_effective,
    $tpot_p50 as tpot_p50_ms,
    $tpot_p99 as tpot_p99_ms,
    count_w(case when output_tokens is not null then sample_weight end) as token_requests,
    coalesce(sum(output_tokens * sample_weight), 0)::double as output_tokens,
    coalesce(sum(input_tokens * sample_weight), 0)::double as input_tokens,
    count_w(case when batch_size is not null then sample_weight end) as batch_requests,
    sum(batch_size * sample_weight)::double
    / nullif(sum(case when batch_size is not null then sample_weight end), 0) as mean_batch,
    count_w(case when cold_start then sample_weight end) as cold_requests
from told
group by grouping sets ((), (line), (fine), (model, version), (cold))
order by grouped, start_time, requests desc, model, version, cold
