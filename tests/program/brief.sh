curl http://localhost:8000/background/status

curl -X POST http://localhost:8000/background/agents \
  -H "Content-Type: application/json" \
  -d '{
    "agent_id": "writer",
    "kind": "chat",
    "base_url": "http://127.0.0.1:9/v1",
    "model": "gpt-5.4-mini",
    "api_key_env": "WRITER_KEY",
    "system_instruction": "Check system health and write concise reports."
  }'

curl http://localhost:8000/background/agents

curl -X POST http://localhost:8000/background/tasks \
  -H "Content-Type: application/json" \
  -d '{
    "task_id": "health_report",
    "query": "Check system health and write the report.",
    "schedule": {"type": "manual"},
    "timeout_seconds": 60
  }'

curl -X POST http://localhost:8000/background/tasks/health_report/run \
  -H "Content-Type: application/json" \
  -d '{"wait": true}' | tee answer

RUN_ID=$(sed -n 's/.*"run_id":"\([^"]*\)".*/\1/p' answer)

curl http://localhost:8000/background/tasks/health_report/status

curl http://localhost:8000/background/runs/$RUN_ID

curl http://localhost:8000/background/runs/$RUN_ID/attempts

curl http://localhost:8000/background/runs/$RUN_ID/events

curl http://localhost:8000/background/runs/$RUN_ID/workspace

curl http://localhost:8000/background/runs/$RUN_ID/workspace/output.md

curl http://localhost:8000/background/runs/$RUN_ID/workspace/events.jsonl | grep -o '"event":"[^"]*"'

curl -X POST http://localhost:8000/background/tasks \
  -H "Content-Type: application/json" \
  -d '{
    "task_id": "hourly_report",
    "agent_id": "system_monitor",
    "query": "Write the hourly operational report.",
    "schedule": {"type": "interval", "seconds": 3600, "start_at": "2999-01-01T00:00:00Z"},
    "retry_policy": {"max_retries": 1, "initial_delay_seconds": 0},
    "overlap_policy": "queue_next",
    "session_policy": "run"
  }'

curl -X POST http://localhost:8000/background/tasks/hourly_report/pause

curl -X POST http://localhost:8000/background/tasks/hourly_report/run

curl -X POST http://localhost:8000/background/tasks/hourly_report/resume

curl http://localhost:8000/background/tasks/hourly_report/occurrences?next=2

curl -X POST http://localhost:8000/background/tasks/hourly_report/run \
  -H "Content-Type: application/json" \
  -d '{"query": "Take all night."}' | tee answer

RUN_ID=$(sed -n 's/.*"run_id":"\([^"]*\)".*/\1/p' answer)

for look in $(seq 1000); do
  if curl http://localhost:8000/background/runs/$RUN_ID | grep -q '"status":"running"'; then break; fi
done

curl -X POST http://localhost:8000/background/runs/$RUN_ID/cancel \
  -H "Content-Type: application/json" \
  -d '{"reason": "it is morning"}' | grep -o '"cancel_reason":"[^"]*"'

curl "http://localhost:8000/background/runs/$RUN_ID?wait=true"

curl -X POST http://localhost:8000/background/runs/$RUN_ID/cancel | grep -o '"status":"[^"]*"'

curl http://localhost:8000/background/runs/$RUN_ID/events | grep -o '"event":"[^"]*"'

curl "http://localhost:8000/background/runs?status=completed" | grep -o '"run_id":"[^"]*"\|"total":[0-9]*'

curl http://localhost:8000/background/tasks | grep -o '"task_id":"[^"]*"\|"total":[0-9]*'

curl -X DELETE http://localhost:8000/background/tasks/hourly_report

curl http://localhost:8000/background/tasks/hourly_report

curl -X DELETE http://localhost:8000/background/agents/writer

curl http://localhost:8000/background/status
