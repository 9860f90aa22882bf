package admission

const AnswerTime = answerTime
